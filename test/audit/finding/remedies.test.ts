// Remedies: the commands have the names of the finding, are safe to copy, and harm no workload.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Code, DifferenceDetail } from '../../../src/audit/finding/catalogue.ts';
import { catalogue } from '../../../src/audit/finding/catalogue.ts';
import type { Cause } from '../../../src/audit/finding/causes.ts';
import { causes } from '../../../src/audit/finding/causes.ts';
import { remedyOf } from '../../../src/audit/finding/remedies.ts';
import { rewriteMirror, touchService } from '../../../src/audit/finding/remedy-steps.ts';
import { findingOf, hostileText } from '../../output/samples.ts';

const codes = Object.keys(catalogue) as Code[];
const everyCause = Object.keys(causes) as Cause[];

const detail = (more: Partial<DifferenceDetail> = {}): DifferenceDetail => ({
  code: 'slice-endpoint-missing',
  address: '10.1.0.14',
  pod: 'shop/web-4',
  field: 'endpoints',
  expected: 'ready',
  actual: null,
  object: 'EndpointSlice shop/web-abcde',
  ...more,
});

const remedy = (code: Code, cause: Cause | null = null) =>
  remedyOf(findingOf({ code, cause, node: 'node-c', differences: [detail()] }));

const all = [
  ...codes.map((code) => remedy(code)),
  ...everyCause.map((cause) => remedy('slice-endpoint-missing', cause)),
];

describe('remedyOf', () => {
  test('fills in namespace and Service', () => {
    expect(remedy('slice-endpoint-missing').commands).toEqual([
      'kubectl -n kube-system get lease kube-controller-manager',
      'kubectl -n shop annotate service/web ' +
        'endpoint-auditor-touched="$(date +%s)" --overwrite',
      'kubectl -n kube-system logs -l component=kube-controller-manager --tail=200',
    ]);
  });

  test('restarts kube-proxy on one node only', () => {
    const selected = '-l k8s-app=kube-proxy --field-selector spec.nodeName=node-c';
    expect(remedy('node-frontend-missing').commands).toEqual([
      `kubectl -n kube-system get pod ${selected}`,
      `kubectl -n kube-system delete pod ${selected}`,
    ]);
  });

  test('has a command for each slice, at most five', () => {
    const differences = Array.from({ length: 12 }, (_, n) =>
      detail({ object: `EndpointSlice shop/web-${n >> 1}` }),
    );
    const { commands } = remedyOf(findingOf({ code: 'slice-orphaned', differences }));
    expect(commands).toEqual(
      [0, 1, 2, 3, 4].map((n) => `kubectl -n shop delete endpointslice/web-${n}`),
    );
  });

  test('takes the remedy of a known cause, except where only Endpoints trigger a sync', () => {
    expect(remedy('slice-labels-different', 'hand-edited').text).toBe(causes['hand-edited'].remedy);
    const mirrored = remedy('mirror-labels-different', 'hand-edited');
    expect(mirrored.text).toBe(catalogue['mirror-labels-different'].remedy);
    expect(mirrored.commands.join('\n')).toContain('annotate endpoints/web ');
    expect(rewriteMirror.commands).not.toContain(touchService);
  });

  test.each(['slice-orphaned', 'endpoints-orphaned'] as const)(
    'labels no Service that does not exist: %s',
    (code) => {
      expect(remedy(code, 'hand-edited')).toEqual(remedy(code));
      expect(remedy(code, 'hand-edited').commands.join()).not.toContain('service/');
    },
  );

  test('has a variant for managed control planes wherever kube-controller-manager must run', () => {
    for (const { commands, text, managed } of all) {
      const needsManager = commands.join().includes('lease kube-controller-manager');
      if (needsManager) expect(managed).toMatch(/EKS, GKE, AKS.*support ticket/);
      if (text.includes('kube-controller-manager runs')) expect(needsManager).toBe(true);
    }
  });

  test('deletes no Service, and no pod except that of kube-proxy on the node', () => {
    const isDeletion = (command: string): boolean =>
      /\b(delete|drain|replace|scale)\b/.test(command);
    for (const command of all.flatMap(({ commands }) => commands).filter(isDeletion)) {
      expect(command).toMatch(
        /delete endpoint(?:s|slice)\/|^kubectl -n kube-system delete pod -l k8s-app=kube-proxy /,
      );
    }
    for (const { text } of all) {
      expect(text).not.toMatch(/(?:delete|recreate) (?:the|a|one of its) (?:Service|pods?)\b/i);
    }
  });

  test('leaves no placeholder and inserts no name that a shell could read as syntax', () => {
    for (const command of all.flatMap(({ commands }) => commands))
      expect(command).not.toMatch(/[{}]/);
    fc.assert(
      fc.property(hostileText, fc.constantFrom(...codes), (name, code) => {
        fc.pre(!/^[a-z0-9.:-]*$/i.test(name));
        const differences = [
          detail({ object: `EndpointSlice ${name}/${name}`, pod: name, address: name }),
        ];
        const names = { namespace: name, service: name, node: name };
        for (const command of remedyOf(findingOf({ code, ...names, differences })).commands) {
          expect(command).not.toContain(name);
        }
      }),
    );
  });
});
