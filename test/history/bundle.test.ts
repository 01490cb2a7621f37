// A bundle of any part of a scenario or a recording has the findings of a replay of the whole.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text as textOf } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { type Auditor, createAuditor } from '../../src/auditor/auditor.ts';
import { replay } from '../../src/auditor/replay.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { createRedactor, type Redactor } from '../../src/cluster/files/redactor.ts';
import { bundleOf, createAddressBook } from '../../src/history/bundle.ts';
import { createAuditorHistory } from '../../src/history/history.ts';
import { openHistory } from '../../src/history/reader.ts';
import { auditorDefaults } from '../build.ts';
import { parseScenario } from '../scenarios/parse.ts';
import { linesOf, scenarioFolder, scenarioNames } from '../verify/verify.ts';
import { faultyFiles, randomOf } from './crash.ts';

type Options = Partial<typeof auditorDefaults>;

/** An auditor, and the entries of a recording for it. */
function open(text: string, options: Options, problems: string[] = []) {
  const auditor = createAuditor({ ...auditorDefaults, ...options });
  const bytes = Readable.from([Buffer.from(text)]);
  const entries = readRecording({ name: 'x', bytes }, ({ message }) => problems.push(message), {
    previousPod: (key) => auditor.store.listers.pods.get(key),
    previousOutput: (resource, key) => auditor.store.objects[resource].get(key),
  });
  return { auditor, entries };
}

/** The findings of a namespace that were open after `from`. */
function findingsOf({ findings }: Auditor, namespace: string, from: number, hide: Redactor | null) {
  const name = (text: string): string => hide?.name(text) ?? text;
  return [...findings.open(), ...findings.resolved()]
    .filter((it) => it.namespace === namespace && it.output !== 'node')
    .filter(({ resolvedAt }) => resolvedAt === null || resolvedAt > from)
    .map(({ code, severity, output, cause, since, openedAt, resolvedAt, ...of }) => {
      const [namespace, service] = [name(of.namespace), name(of.service)];
      return { code, severity, output, cause, namespace, service, since, openedAt, resolvedAt };
    })
    .map((it) => JSON.stringify(it))
    .sort();
}

/** Of two empty slices, the first by name is not surplus: hashes have another order. */
const orderedByName = new Set(['slice-surplus-empty']);

interface Whole {
  readonly times: readonly number[];
  readonly namespaces: readonly string[];
  /** The most addresses of an Endpoints object. */
  readonly most: number;
  readonly book: ReturnType<typeof createAddressBook>;
}

/** Above this, a mirrored slice has the first addresses in the order of their texts. */
const mostMirrored = 1000;

/** The moments and the namespaces of a recording. */
async function measure(text: string, options: Options): Promise<Whole> {
  const { auditor, entries } = open(text, options);
  const book = createAddressBook();
  const times: number[] = [];
  const namespaces = new Set<string>();
  let most = 0;
  for await (const entry of entries) {
    auditor.take(entry);
    book.note(entry);
    if (auditor.serviceAuditor() !== null) times.push(auditor.now() ?? 0);
    for (const { namespace } of auditor.store.listers.services.values()) namespaces.add(namespace);
    if (entry.kind !== 'event' || !('subsets' in entry.event.object)) continue;
    const { subsets } = entry.event.object;
    most = Math.max(most, ...subsets.map(({ addresses }) => addresses.length));
  }
  return { times, namespaces: [...namespaces], most, book };
}

/** Compares random parts; the number of findings that they had. */
async function compareParts(text: string, options: Options, count: number): Promise<number> {
  const random = randomOf(7);
  const { times, namespaces, most, book } = await measure(text, options);
  const pick = <T>(from: readonly T[]): T | undefined => from[Math.floor(random() * from.length)];
  let found = 0;
  for (let left = count; left > 0 && namespaces.length > 0; left--) {
    const [from = 0, to = 0] = [pick(times) ?? 0, pick(times) ?? 0].sort((a, b) => a - b);
    const namespace = pick(namespaces) ?? '';
    const hidden = { ports: true, ips: most <= mostMirrored };
    const isHidden = random() < 0.5;
    const whole = open(text, options);
    await replay(whole.auditor, whole.entries, { speed: Infinity, until: to });
    const isOrdered = whole.auditor.findings.open().some(({ code }) => orderedByName.has(code));
    const redactor = isHidden && !isOrdered ? createRedactor(hidden) : null;
    const want = findingsOf(whole.auditor, namespace, from, redactor);
    const source = open(text, options);
    const part = new Set([namespace]);
    const content = { from, to, namespaces: part, others: book.sharing(part), redactor };
    const lines: string[] = [];
    for await (const line of bundleOf(source.auditor, source.entries, content)) lines.push(line);
    const problems: string[] = [];
    const bundle = open(lines.join(''), options, problems);
    await replay(bundle.auditor, bundle.entries, { speed: Infinity, until: null });
    const shown = redactor?.name(namespace) ?? namespace;
    const about = { from, to, namespace, isRedacted: redactor !== null };
    expect({ ...about, findings: findingsOf(bundle.auditor, shown, from, null) }).toEqual({
      ...about,
      findings: want,
    });
    expect(problems.filter((text) => !text.startsWith('The recorder could not read'))).toEqual([]);
    const end = JSON.parse(lines.at(-1) ?? '') as { findings: readonly object[] };
    expect(end.findings.map((it) => JSON.stringify(it)).sort()).toEqual(want);
    found += want.length;
  }
  return found;
}

/** Longer scenarios are about size. */
const mostLines = 300;

describe('a bundle has the findings of the whole', () => {
  test('scenarios', async () => {
    let found = 0;
    for (const name of scenarioNames()) {
      const scenario = parseScenario(name, readFileSync(join(scenarioFolder, name), 'utf8'));
      const lines = [...linesOf(scenario)];
      if (lines.length > mostLines) continue;
      const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
      const { window: settle, release, maxEndpointsPerSlice } = scenario;
      found += await compareParts(text, { settle, release, maxEndpointsPerSlice }, 2);
    }
    expect(found).toBeGreaterThan(50);
  }, 120_000);

  const chaos = join(import.meta.dirname, '../recordings/chaos');
  const recordings = readdirSync(chaos).filter((name) => name.endsWith('.gz'));
  test.each(recordings)('chaos %s', async (name) => {
    const text = gunzipSync(readFileSync(join(chaos, name))).toString();
    await compareParts(text, { settle: 10 }, 3);
  });
});

test('a bundle of a history begins before a segment that the moments have in between', async () => {
  const name = 'endpoints-miss-one-pod-and-keep-another.txt';
  const scenario = parseScenario(name, readFileSync(join(scenarioFolder, name), 'utf8'));
  const text = [...linesOf(scenario)].map((line) => `${JSON.stringify(line)}\n`).join('');
  const options = { settle: scenario.window };
  const { files } = faultyFiles();
  const { auditor, entries } = open(text, options);
  const history = createAuditorHistory(auditor, {
    files,
    // A segment for each second.
    limits: { size: 2 ** 40, age: 8 },
    now: () => auditor.now() ?? 0,
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBeNull(),
  });
  const times: number[] = [];
  for await (const entry of entries) {
    auditor.take(entry);
    history.take(entry);
    await history.work();
    times.push(auditor.now() ?? 0);
  }
  await history.close();
  const [from, to] = [(times[0] ?? 0) + 12, times.at(-1) ?? 0];
  const losses: string[] = [];
  const onLoss = (_: string, message: string): void => void losses.push(message);
  const { bytes } = await openHistory(files, to, onLoss, from);
  const recorded = open(await textOf(Readable.from(bytes)), options);
  const content = {
    ...{ from, to, namespaces: new Set(['shop']) },
    ...{ others: new Set<string>(), redactor: null },
  };
  const bundle: string[] = [];
  for await (const line of bundleOf(recorded.auditor, recorded.entries, content)) bundle.push(line);
  const shown = open(bundle.join(''), options);
  await replay(shown.auditor, shown.entries, { speed: Infinity, until: null });
  const want = findingsOf(auditor, 'shop', from, null);
  expect(want.length).toBeGreaterThan(1);
  expect(findingsOf(shown.auditor, 'shop', from, null)).toEqual(want);
  const { files: none } = faultyFiles();
  await expect(openHistory(none, to, onLoss, from)).rejects.toThrow('no history');
});

test('a redacted bundle has no names', async () => {
  const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
  const text = gunzipSync(readFileSync(path)).toString();
  const { auditor, entries } = open(text, { settle: 30 });
  const redactor = createRedactor({ ports: true, ips: true });
  const content = {
    from: 0,
    to: Infinity,
    namespaces: new Set(['shop']),
    others: new Set<string>(),
    redactor,
  };
  const lines: string[] = [];
  for await (const line of bundleOf(auditor, entries, content)) lines.push(line);
  expect(lines.length).toBeGreaterThan(100);
  const namesOf = auditor.store.listers;
  const names = [...namesOf.services.values(), ...namesOf.pods.values(), ...namesOf.nodes.values()]
    .filter(({ namespace }) => ['shop', ''].includes(namespace))
    .flatMap(({ name }) => name);
  expect(names.length).toBeGreaterThan(10);
  for (const name of [...names, 'shop']) {
    expect(lines.find((line) => line.includes(`${name}"`) || line.includes(`/${name}`))).toBe(
      undefined,
    );
  }
});
