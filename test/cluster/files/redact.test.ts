// The content of a redacted recording: names are gone, and verdicts are the same.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createAuditor } from '../../../src/auditor/auditor.ts';
import { replay } from '../../../src/auditor/replay.ts';
import { createRedactor } from '../../../src/cluster/files/redactor.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import { problemAt, problemText } from '../../../src/cluster/decode/problem.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { auditorDefaults } from '../../build.ts';
import { rawEndpoints, rawPod, rawService, rawSlice } from '../../live-cluster.ts';

const key = Buffer.from('a key that is no secret');

describe('an object', () => {
  test('loses its names, and all fields that are not audited', () => {
    const redactor = createRedactor({ key });
    const all = (
      [
        ['pods', rawPod],
        ['services', rawService],
        ['endpoints', rawEndpoints],
        ['endpointslices', rawSlice],
      ] as const
    ).map(([resource, raw]) => JSON.stringify(redactor.object(resource, raw)));
    for (const word of ['web', 'shop', 'node-a', 'zone-a', 'team', 'checkout', 'secret', 'app"']) {
      expect(all.join('\n').replaceAll(/uid-of-web(?:-1)?/g, '')).not.toContain(word);
    }
    const web = redactor.name('web');
    expect(all[3]).toContain(`"kubernetes.io/service-name":"${web}"`);
    expect(all[1]).toContain(`"name":"${web}"`);
    const selector = `{"${redactor.name('app')}":"${web}"}`;
    expect(all[0]).toContain(`"labels":${selector}`);
    expect(all[1]).toContain(`"selector":${selector}`);
    for (const text of ['10.1.0.1', 'endpointslice-controller.k8s.io', 'uid-of-web-1', '8080']) {
      expect(all[3]).toContain(text);
    }
  });

  const annotated = (annotations: Record<string, string>) => {
    const { metadata } = createRedactor({ key }).object('endpoints', {
      metadata: { name: 'web', namespace: 'shop', annotations },
    }) as { metadata: { annotations: Record<string, string> } };
    return metadata.annotations;
  };

  test('keeps annotations that controllers read, and hashes the others', () => {
    const time = '2026-11-21T10:56:46Z';
    const got = annotated({
      'endpoints.kubernetes.io/last-change-trigger-time': time,
      'kubectl.kubernetes.io/last-applied-configuration': '{"metadata":{"name":"web"}}',
      'control-plane.alpha.kubernetes.io/leader': '{"holderIdentity":"web-1"}',
      'example.com/owner': 'somebody',
      'container.apparmor.security.beta.kubernetes.io/web-1': 'x',
    });
    expect(got['endpoints.kubernetes.io/last-change-trigger-time']).toBe(time);
    expect(got['kubectl.kubernetes.io/last-applied-configuration']).toBe('');
    expect(Object.keys(got)).toContain('control-plane.alpha.kubernetes.io/leader');
    expect(Object.keys(got)).toHaveLength(5);
    expect(JSON.stringify(got)).not.toMatch(/owner|somebody|holder|web/);
  });

  test('hides what other controllers and owners are, and what is no address', () => {
    const owned = (apiVersion: string, kind: string) => ({ apiVersion, kind, name: 'x', uid: 'u' });
    const labels = { 'endpointslice.kubernetes.io/managed-by': 'payments.acme.com' };
    const raw = {
      metadata: {
        labels,
        annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': 'acme day' },
        ownerReferences: [owned('acme.internal/v1', 'PaymentGateway'), owned('v1', 'Service')],
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', port: 80, appProtocol: 'acme.com/rpc' }],
      endpoints: [{ addresses: ['10.1.0.1', 'db.acme.com'], targetRef: { kind: 'AcmePod' } }],
    };
    const text = JSON.stringify(createRedactor({ key }).object('endpointslices', raw));
    expect(text).not.toMatch(/acme|payment/i);
    for (const kept of ['"10.1.0.1"', '"name":"http"', '"v1"', '"kind":"Service"', '"uid":"u"']) {
      expect(text).toContain(kept);
    }
    const controller = { [Object.keys(labels)[0] ?? '']: 'endpointslice-controller.k8s.io' };
    expect(createRedactor({ key }).labels(controller)).toEqual(controller);
  });

  test('loses the part of a label after the slash, unless the audit reads it', () => {
    const redactor = createRedactor({ key });
    const [team, master] = ['acme', 'master'].map((it) => `node-role.kubernetes.io/${it}`);
    const shown = redactor.labels({ [team ?? '']: '', [master ?? '']: '', 'acme.k8s.io/x': '' });
    expect(shown).toEqual({
      [redactor.name(team ?? '')]: '',
      'node-role.kubernetes.io/master': '',
      [redactor.name('acme.k8s.io/x')]: '',
    });
  });

  test('hides port names, if that is asked for, alike in all objects', () => {
    const redactor = createRedactor({ key, ports: true });
    const port = redactor.port('acme-rpc');
    const service = { spec: { ports: [{ name: 'acme-rpc', targetPort: 'acme-rpc', port: 80 }] } };
    const pod = { spec: { containers: [{ ports: [{ name: 'acme-rpc', containerPort: 8080 }] }] } };
    const texts = [redactor.object('services', service), redactor.object('pods', pod)].map((it) =>
      JSON.stringify(it),
    );
    expect(texts.join()).not.toContain('acme');
    expect(texts[0]).toContain(`"name":"${port}","port":80,"targetPort":"${port}"`);
    expect(texts[1]).toContain(`"name":"${port}","containerPort":8080`);
    // The API server allows no longer name of a port.
    expect(port.length).toBeLessThanOrEqual(15);
  });

  test('that is none stays unreadable', () => {
    for (const raw of [null, 'text', 7, [1]]) {
      expect(createRedactor({ key }).object('pods', raw)).toBeNull();
    }
  });
});

describe('a name', () => {
  test('has one hash, another than other names, and another with another key', () => {
    const [one, same, other] = [createRedactor({ key }), createRedactor({ key }), createRedactor()];
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }), (a, b) => {
        expect(one.name(a)).toMatch(/^r[0-9a-f]{12}$/);
        expect(one.name(a)).toBe(same.name(a));
        expect(one.name(a) === one.name(b)).toBe(a === b);
        expect(other.name(a)).not.toBe(one.name(a));
      }),
    );
    expect(one.name('')).toBe('');
    const long = 'x'.repeat(5000);
    expect(one.name(long)).toBe(same.name(long));
  });
});

describe('a problem', () => {
  test('has the hashes of the recording, and no value', () => {
    const redactor = createRedactor({ key });
    const lost = { resource: 'pods', namespace: 'shop', name: 'web-1' } as const;
    const problem = redactor.problem({
      ...problemAt('/api/v1/namespaces/shop/pods', 7, 'Expected a text'),
      lost: { ...lost, labels: { team: 'acme' } },
      object: 'Pod shop/web-1',
      field: 'metadata.labels["team"]',
      value: '"acme"',
    });
    const [shop, web] = [redactor.name('shop'), redactor.name('web-1')];
    expect(problem.lost).toEqual({
      ...{ resource: 'pods', namespace: shop, name: web },
      labels: { [redactor.name('team')]: redactor.name('acme') },
    });
    expect(problemText(problem)).toBe(
      `pods:7: Pod ${shop}/${web}: metadata.labels[…]: Expected a text`,
    );
  });
});

interface AuditResult {
  readonly findings: readonly string[];
  readonly verdicts: readonly string[];
}

async function auditOf(text: string): Promise<AuditResult> {
  const auditor = createAuditor({ ...auditorDefaults });
  const bytes = (async function* () {
    yield await Promise.resolve(Buffer.from(text));
  })();
  const entries = readRecording({ name: 'test', bytes }, ({ message }) => {
    throw new Error(message);
  });
  await replay(auditor, entries, { speed: Infinity, until: null });
  const { findings: pending } = auditor;
  const findings = [...pending.open(), ...pending.resolved()].map((finding) => {
    const { code, severity, output, cause, since, openedAt, resolvedAt } = finding;
    return [code, severity, output, cause, since, openedAt, resolvedAt].join(' ');
  });
  const verdicts = [...(auditor.serviceAuditor()?.audited.values() ?? [])].map(
    ({ items, unknown }) => `${String(items.size)} ${[...unknown.values()].join()}`,
  );
  return { findings: findings.sort(), verdicts: verdicts.sort() };
}

describe('a redacted recording has the verdicts of the original', () => {
  const path = join(import.meta.dirname, '../../recordings/shop.ndjson.gz');
  const lines = gunzipSync(readFileSync(path))
    .toString()
    .trimEnd()
    .split('\n')
    .filter(
      // Dumps of nodes are not read, and a recorder does not write them.
      (line) => !line.startsWith('{"kind":"node-'),
    );
  let want: Promise<AuditResult> | undefined;

  test.each([
    ['names', {}],
    ['names, ports and addresses', { ports: true, ips: true }],
  ])('without %s', async (_name, options) => {
    const redactor = createRedactor(options);
    const redacted = lines.map((line) => {
      const entry = JSON.parse(line) as { kind: string; resource: Resource; object: unknown };
      if (entry.kind !== 'object') return line;
      return JSON.stringify({ ...entry, object: redactor.object(entry.resource, entry.object) });
    });
    want ??= auditOf(`${lines.join('\n')}\n`);
    expect((await want).findings.length).toBeGreaterThan(5);
    expect(await auditOf(`${redacted.join('\n')}\n`)).toEqual(await want);
    expect(redacted.filter((line) => /shop|search|checkout/.test(line)).length).toBe(0);
  });
});
