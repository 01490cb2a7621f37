// The content of a redacted recording: names are gone, and verdicts are the same.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createAuditor } from '../../../src/auditor/auditor.ts';
import { replay } from '../../../src/auditor/replay.ts';
import { createRedactor } from '../../../src/cluster/files/recorder.ts';
import { readRecording } from '../../../src/cluster/files/recording.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { auditorDefaults } from '../../build.ts';
import { rawEndpoints, rawPod, rawService, rawSlice } from '../../live-cluster.ts';

const key = Buffer.from('a key that is no secret');

describe('an object', () => {
  test('loses its names, and all fields that are not audited', () => {
    const redactor = createRedactor(key);
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
    const { metadata } = createRedactor(key).object('endpoints', {
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
    });
    expect(got['endpoints.kubernetes.io/last-change-trigger-time']).toBe(time);
    expect(got['kubectl.kubernetes.io/last-applied-configuration']).toBe('');
    expect(Object.keys(got)).toContain('control-plane.alpha.kubernetes.io/leader');
    expect(Object.keys(got)).toHaveLength(4);
    expect(JSON.stringify(got)).not.toMatch(/owner|somebody|holder|"web/);
  });

  test('that is none stays unreadable', () => {
    for (const raw of [null, 'text', 7, [1]]) {
      expect(createRedactor(key).object('pods', raw)).toBeNull();
    }
  });
});

describe('a name', () => {
  test('has one hash, another than other names, and another with another key', () => {
    const [one, same, other] = [createRedactor(key), createRedactor(key), createRedactor()];
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }), (a, b) => {
        expect(one.name(a)).toMatch(/^r[0-9a-f]{12}$/);
        expect(one.name(a)).toBe(same.name(a));
        expect(one.name(a) === one.name(b)).toBe(a === b);
        expect(other.name(a)).not.toBe(one.name(a));
      }),
    );
    expect(one.name('')).toBe('');
  });
});

interface Judged {
  readonly findings: readonly string[];
  readonly verdicts: readonly string[];
}

async function judged(text: string): Promise<Judged> {
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

test('a redacted recording has the verdicts of the original', async () => {
  const path = join(import.meta.dirname, '../../recordings/shop.ndjson.gz');
  const lines = gunzipSync(readFileSync(path))
    .toString()
    .trimEnd()
    .split('\n')
    .filter(
      // Dumps of nodes are not read, and a recorder does not write them.
      (line) => !line.startsWith('{"kind":"node-'),
    );
  const redactor = createRedactor();
  const redacted = lines.map((line) => {
    const entry = JSON.parse(line) as { kind: string; resource: Resource; object: unknown };
    if (entry.kind !== 'object') return line;
    return JSON.stringify({ ...entry, object: redactor.object(entry.resource, entry.object) });
  });
  const want = await judged(`${lines.join('\n')}\n`);
  expect(want.findings.length).toBeGreaterThan(5);
  expect(await judged(`${redacted.join('\n')}\n`)).toEqual(want);
  expect(redacted.filter((line) => /shop|search|checkout/.test(line)).length).toBe(0);
});
