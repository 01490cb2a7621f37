// What a history has of the rules of nodes: at random moments, nodes have the same verdicts and
// findings as in a replay of the whole recording, which has their rules.

import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync } from 'node:zlib';

import { beforeAll, describe, expect, test } from 'vitest';

import type { NodeReportEntry } from '../../src/agent/client/scraper.ts';
import { type Auditor, type AuditorEntry, createAuditor } from '../../src/auditor/auditor.ts';
import { explainTarget } from '../../src/auditor/explanations.ts';
import { createQueries } from '../../src/auditor/queries.ts';
import { replay } from '../../src/auditor/replay.ts';
import { readRecording } from '../../src/cluster/files/recording.ts';
import { openQueries } from '../../src/commands/history-reader.ts';
import { checkpointOf } from '../../src/history/checkpoint.ts';
import { openFolder } from '../../src/history/files.ts';
import type { Problem } from '../../src/cluster/decode/problem.ts';
import { type AuditorHistory, createAuditorHistory } from '../../src/history/history.ts';
import { openHistory } from '../../src/history/reader.ts';
import { resources } from '../../src/model/objects.ts';
import { auditorDefaults, node } from '../build.ts';
import { faultyFiles } from './crash.ts';

const path = join(import.meta.dirname, '../recordings/shop.ndjson.gz');
const text = gunzipSync(readFileSync(path));

const entriesOf = (bytes: AsyncIterable<Uint8Array>, auditor: Auditor) =>
  readRecording({ name: 'recording', bytes }, ({ message }) => expect(message).toBe(''), {
    previousPod: (key) => auditor.store.listers.pods.get(key),
    previousOutput: (resource, key) => auditor.store.objects[resource].get(key),
  });

/** The verdicts of nodes, and their findings. */
function nodesOf(auditor: Auditor) {
  const verdicts = [...(auditor.nodes()?.verdicts ?? [])].map(
    ([node, ports]) =>
      [node, ports.map((it) => `${it.port} ${it.verdict} ${it.reason ?? ''}`).sort()] as const,
  );
  const findings = auditor.findings
    .open()
    .filter(({ node }) => node !== null)
    .map(({ code, node, namespace, service, severity, since, openedAt, differences }) => {
      const shown = differences.slice(0, 20).map((it) => JSON.stringify(it));
      return { code, node, namespace, service, severity, since, openedAt, shown: shown.sort() };
    });
  return {
    verdicts: verdicts.sort(),
    findings: findings.sort((a, b) => (a.code < b.code ? -1 : 1)),
  };
}

const { files } = faultyFiles();
/** What a replay of the whole recording shows after an entry. */
const truth = new Map<number, ReturnType<typeof nodesOf>>();

beforeAll(async () => {
  const state = { history: null as AuditorHistory | null };
  const auditor = createAuditor({
    ...auditorDefaults,
    onOpen: (finding) => state.history?.noteFinding(finding),
    onResolve: (finding) => state.history?.noteFinding(finding),
  });
  const history = createAuditorHistory(auditor, {
    files,
    limits: { size: 2 ** 40, age: 400 },
    now: () => auditor.now() ?? 0,
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBe(null),
  });
  state.history = history;
  let count = 0;
  for await (const entry of entriesOf(Readable.from([text]), auditor)) {
    auditor.take(entry);
    history.take(entry);
    if (auditor.serviceAuditor() === null) continue;
    if (count++ % 10 === 0) await history.work();
    if (entry.kind === 'node-rules') truth.set(auditor.now() ?? 0, nodesOf(auditor));
  }
  await history.close();
});

/** An auditor at a moment of the history. */
async function auditorAt(moment: number, from = files): Promise<Auditor> {
  const auditor = createAuditor(auditorDefaults);
  const { bytes } = await openHistory(from, moment, (_, message) => expect(message).toBe(''));
  await replay(auditor, entriesOf(bytes, auditor), { speed: Infinity, until: moment });
  return auditor;
}

describe('a history', () => {
  test('has the verdicts and the findings of nodes at each moment', async () => {
    const moments = [...truth.keys()].filter((_, index) => index % 7 === 3);
    let findings = 0;
    for (const moment of moments) {
      const found = nodesOf(await auditorAt(moment));
      expect([moment, found]).toEqual([moment, truth.get(moment)]);
      findings += found.findings.length;
    }
    // Else nothing was compared.
    expect(moments.length).toBeGreaterThan(15);
    expect(findings).toBeGreaterThan(5);
  });

  test('explains a node as of then', async () => {
    const [moment = 0] = [...truth].findLast(([, { findings }]) => findings.length > 0) ?? [];
    const auditor = await auditorAt(moment);
    const [finding] = nodesOf(auditor).findings;
    const name = finding?.node ?? '';
    const target = { kind: 'node', node: name, service: null, port: null } as const;
    const document = explainTarget(auditor, target);
    const nodes = createQueries(auditor, 'test').nodes();
    const row = nodes.find((it) => it.node === name);
    expect(row?.verdicts.different).toBeGreaterThan(0);
    expect(document?.answer).toContain(`Node ${name}`);
    expect(document?.reasons.map((it) => it.text).join('\n')).toContain('kube-proxy 1.');
  });

  test('leaves the nodes out of a part of a cluster', async () => {
    const auditor = await auditorAt([...truth.keys()].at(-1) ?? 0);
    const at = auditor.now() ?? 0;
    const linesOf = (checkpoint: ReturnType<typeof checkpointOf>): number =>
      [...(checkpoint?.parts ?? [])].filter((it) => it.includes('"node-state"')).length;
    expect(linesOf(checkpointOf(auditor, at))).toBe(3);
    const part = { includes: () => true, redactor: null };
    expect(linesOf(checkpointOf(auditor, at, part))).toBe(0);
  });
});

test('findings of a node that a history does not have are counted', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));
  const problems: string[] = [];
  const auditor = createAuditor({
    ...auditorDefaults,
    onProblem: ({ message }) => problems.push(message),
  });
  const history = createAuditorHistory(auditor, {
    files: openFolder(folder),
    limits: { size: 2 ** 40, age: 400 },
    now: () => auditor.now() ?? 0,
    pause: () => Promise.resolve(),
    onTrouble: (reason) => expect(reason).toBe(null),
  });
  const known = { unknownReason: null, unknownSince: 0, readSince: 1000, config: null };
  const saved = { ...known, usual: null, verdicts: [], findings: [], moreFindings: 7 };
  const entries: AuditorEntry[] = [
    { kind: 'header', at: 1000, kubernetes: 'v1.36.0', resources },
    ...resources.map((resource) => ({ kind: 'synced' as const, at: 1000, resource })),
    { kind: 'node-state', at: 1001, node: 'node-a', saved },
  ];
  for (const entry of entries) auditor.take(entry);
  await history.work();
  await history.close();
  expect(problems).toEqual(['The history has only 0 of 7 findings']);

  const flags = { settle: 30, maxEndpointsPerSlice: 100, endpoints: true };
  const site = { cluster: null, links: [], hasMetrics: false };
  const question = { kind: 'moment', history: folder, source: folder, flags, site } as const;
  const { losses } = await openQueries({ ...question, at: 1001 });
  expect(losses).toEqual(['7 findings of Node node-a are not in the history']);
});

describe('the agent of a node', () => {
  /** A report of a node without Services. */
  function reportAt(at: number, problems: readonly string[]): NodeReportEntry {
    const noSenders = { node: null, pod: null, outside: null };
    const asking = { ip: noSenders, ip6: noSenders, addresses: [], pods: [], strays: false };
    const rules = { settings: {}, proxyConfig: null, frontends: [], digests: new Map() };
    const report = { node: 'node-a', mode: 'iptables' as const, localAddresses: [], ...rules };
    const version = problems.join();
    return {
      ...{
        kind: 'node-report',
        at,
        seenAt: at,
        node: 'node-a',
        etag: version,
        version,
        lasting: 30,
      },
      report: { ...report, problems, asking },
      outcomes: null,
      onNeed: () => undefined,
    };
  }

  test('is in the history when its answer changes, and when its Node is removed', async () => {
    const { files } = faultyFiles();
    const problems: string[] = [];
    const onProblem = ({ message }: Problem): void => void problems.push(message);
    const auditor = createAuditor({ ...auditorDefaults, onProblem });
    const history = createAuditorHistory(auditor, {
      files,
      limits: { size: 2 ** 40, age: 86_400 },
      now: () => auditor.now() ?? 0,
      pause: () => Promise.resolve(),
      onTrouble: (reason) => expect(reason).toBe(null),
    });
    const take = async (...entries: AuditorEntry[]): Promise<void> => {
      for (const entry of entries) {
        auditor.take(entry);
        history.take(entry);
        await history.work();
      }
    };
    const object = node({ name: 'node-a' });
    await take(
      { kind: 'header', at: 1000, kubernetes: 'v1.36.0', resources },
      { kind: 'event', event: { resource: 'nodes', type: 'added', object, at: 1000 } },
      ...resources.map((resource) => ({ kind: 'synced' as const, at: 1000, resource })),
    );
    const unseen = { kind: 'node-unseen', node: 'node-a' } as const;
    await take({ ...unseen, at: 1010, state: 'absent' }, { ...unseen, at: 1020, state: 'absent' });
    for (const at of [1025, 1030, 1035]) await take(reportAt(at, []));
    await take(reportAt(1040, ['iptables-save is missing']));
    await take({ ...unseen, at: 1045, state: null }, { kind: 'clock', at: 1048 });
    await history.close();
    expect(problems).toEqual(['iptables-save is missing']);

    const verdicts: unknown[] = [];
    for (const moment of [1021, 1036, 1041, 1046]) {
      const past = await auditorAt(moment, files);
      const ports = past.nodes()?.verdicts.get('node-a');
      verdicts.push(ports?.map((it) => it.reason ?? it.verdict) ?? null);
    }
    expect(verdicts).toEqual([['agent-absent'], [], ['rules-not-known'], null]);
    const { bytes } = await openHistory(files, Infinity, () => undefined);
    const pieces: Uint8Array[] = [];
    for await (const piece of bytes) pieces.push(piece);
    const lines = Buffer.concat(pieces).toString().split('\n');
    expect(lines.filter((line) => line.includes('"node-state"'))).toHaveLength(4);
  });
});
