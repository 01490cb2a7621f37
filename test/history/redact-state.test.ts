// The redacted state of Services: it has no names, and the subjects of the redacted objects.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { createAuditor } from '../../src/auditor/auditor.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { createRedactor } from '../../src/cluster/files/redactor.ts';
import { saveService, type SavedService } from '../../src/audit/service/checkpoint.ts';
import type { Resource } from '../../src/model/objects.ts';
import { redactState } from '../../src/history/redact-state.ts';
import { auditorDefaults } from '../build.ts';
import { parseScenario, type Scenario } from '../scenarios/parse.ts';
import { linesOf, scenarioFolder, scenarioNames } from '../verify/verify.ts';

const key = Buffer.from('a key that is no secret');

type Change = SavedService['items'][string][number]['changes'][number];

const ofPod = { at: 7, kind: 'Pod', namespace: '100234', name: 'http' };

function redactChange(field: string, from: string | null, to: string | null): Change | undefined {
  const redactor = createRedactor({ key });
  redactor.object('pods', {
    spec: { containers: [{ ports: [{ name: 'http', containerPort: 80 }] }] },
  });
  const changes = [{ ...ofPod, field, from, to }];
  const difference = { code: 'slice-endpoint-missing', subject: 'http' };
  const item = { difference, changes, lesser: [] };
  const saved = {
    relabelled: [],
    relabelledMirrors: [],
    items: { 'endpointslices 10.1.0.1': [item] },
  };
  const { items } = redactState(saved as unknown as SavedService, redactor);
  expect(items['endpointslices 10.1.0.1']?.[0]?.difference.subject).toBe(redactor.name('http'));
  return items['endpointslices 10.1.0.1']?.[0]?.changes[0];
}

describe('a change', () => {
  const { name } = createRedactor({ key });

  test('has no names, whatever they look like', () => {
    expect(redactChange('metadata.labels tenant', '100234', 'http')).toEqual({
      ...ofPod,
      namespace: name('100234'),
      name: name('http'),
      field: `metadata.labels ${name('tenant')}`,
      from: name('100234'),
      to: name('http'),
    });
    const selector = redactChange('spec.selector', 'app=http,tenant=100234', 'app=http,ten');
    expect(selector?.field).toBe('spec.selector');
    expect(selector?.from).toBe(
      `${name('app')}=${name('http')},${name('tenant')}=${name('100234')}`,
    );
    expect(selector?.to).toBe(`${name('app')}=${name('http')},${name('ten')}`);
    for (const field of ['spec.nodeName', 'spec.hostname', 'an unknown field']) {
      expect(redactChange(field, null, '100234')).toMatchObject({ from: null, to: name('100234') });
    }
  });

  test('keeps ports, addresses, uids and words of Kubernetes', () => {
    for (const [field, text] of [
      ['ports', 'name=http,protocol=TCP,port=80,targetPort=http, name=x,port=81,targetPort=8081'],
      ['status.podIPs', '10.1.0.1, fd00::1'],
      ['spec.type', 'NodePort'],
      ['metadata.uid', '53d7'],
    ] as const) {
      expect(redactChange(field, text, null)).toMatchObject({ field, from: text, to: null });
    }
    const app = redactChange('ports', 'port=80,appProtocol=acme.com/rpc', null);
    expect(app?.from).toBe(`port=80,appProtocol=${name('acme.com/rpc')}`);
  });
});

type Line = Readonly<Record<string, unknown>>;

/** The codes and subjects of all differences by Service and unit, after each line. */
async function subjectsOf(
  lines: readonly Line[],
  { window: settle, release, maxEndpointsPerSlice }: Scenario,
  show: (saved: SavedService) => SavedService,
  name: (text: string) => string,
): Promise<string[][]> {
  const auditor = createAuditor({ ...auditorDefaults, settle, release, maxEndpointsPerSlice });
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
  const bytes = (async function* () {
    yield await Promise.resolve(Buffer.from(text));
  })();
  const entries = readRecording({ name: 'x', bytes }, () => undefined, {
    previousPod: (pod) => auditor.store.listers.pods.get(pod),
  });
  const all: string[][] = [];
  for await (const entry of entries) {
    auditor.take(entry);
    const found: string[] = [];
    for (const audit of auditor.serviceAuditor()?.audited.values() ?? []) {
      const { items } = show(structuredClone(saveService(audit, new Map())));
      const service = audit.record.key.split('/').map(name).join('/');
      for (const [unit, differences] of Object.entries(items)) {
        for (const { difference } of differences) {
          found.push(JSON.stringify([service, unit, difference.code, difference.subject]));
        }
      }
    }
    all.push(found.sort());
  }
  return all;
}

/** Longer scenarios are about size. Above 1,000 addresses, their order decides. */
const mostText = 100_000;

/** Of two empty slices, the first by name is not surplus: hashes have another order. */
const orderedByName = /slice-surplus-empty|slice-duplicate/;

describe('subjects are those of the redacted objects', () => {
  test.each([
    ['names', {}],
    ['names, ports and addresses', { ports: true, ips: true }],
  ])(
    'without %s',
    async (_name, options) => {
      const codes = new Set<string>();
      for (const file of scenarioNames()) {
        const scenario = parseScenario(file, readFileSync(join(scenarioFolder, file), 'utf8'));
        const lines = [...linesOf(scenario)] as unknown as Line[];
        if (JSON.stringify(lines).length > mostText) continue;
        const redactor = createRedactor({ ...options, key });
        const hidden = lines.map((line) =>
          line.kind === 'object'
            ? { ...line, object: redactor.object(line.resource as Resource, line.object) }
            : line,
        );
        const show = (saved: SavedService) => redactState(saved, redactor);
        const want = await subjectsOf(
          hidden,
          scenario,
          (saved) => saved,
          (text) => text,
        );
        const got = await subjectsOf(lines, scenario, show, redactor.name);
        if (orderedByName.test(want.flat().join())) continue;
        expect([file, got]).toEqual([file, want]);
        for (const text of want.flat()) codes.add((JSON.parse(text) as string[])[2] ?? '');
      }
      expect(codes.size).toBeGreaterThan(20);
    },
    120_000,
  );
});
