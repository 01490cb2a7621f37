// Every recorded and every broken node: its packets and its findings, and the share of misrouted
// connections that docs/impact.md defines, compared with the packets that real kernels dropped,
// refused or sent to a wrong address on nodes with faults.

import { dirname, relative, sep } from 'node:path';

import { describe, expect, test } from 'vitest';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { comparePacket } from '../../src/audit/node/compare-packet.ts';
import { impactOfPacket } from '../../src/audit/node/packet-impact.ts';
import { addCounts } from '../../src/model/collections.ts';
import { joinHostPort } from '../../src/model/ip.ts';
import type { ExpectedOutcome } from '../../src/model/proxy-config.ts';
import { ciliumFoldersBelow, type Folder, foldersBelow, type PacketLine } from './folder.ts';
import {
  auditFolder,
  behaviorIn,
  checkAudit,
  emptySummary,
  forwardingOf,
  isTrue,
  walkFolders,
} from './walk.ts';

const here = import.meta.dirname;

/** The attempts of a packet that did not do what was wanted. */
function countMisrouted({ outcomes, attempts }: PacketLine, want: ExpectedOutcome): number {
  const seen =
    typeof outcomes === 'string'
      ? [[outcomes, attempts] as const]
      : Object.entries(outcomes).map(([name, { count }]) => [name, count] as const);
  const isStopped = (name: string): boolean => ['drop', 'reject', 'pass'].includes(name);
  const isRight = (name: string): boolean =>
    want.kind === 'endpoints' ? want.endpoints.has(name) : isStopped(name);
  return seen.reduce((sum, [name, count]) => sum + (isRight(name) ? 0 : count), 0);
}

/** Computed and counted misrouted connections of a folder, and the variance of the count. */
function compareFolder(folder: Folder) {
  const input = forwardingOf(folder);
  const sums = { computed: 0, counted: 0, variance: 0, packets: 0, skipped: 0 };
  const misrouted = new Set<string>();
  if (input === null) return { ...sums, misrouted, services: null };
  const { forwarding } = input;
  const rules = behaviorIn(folder);
  const allowed = { mayMasquerade: () => true, isCheckedClusterIP: () => false };
  const site = { mode: forwarding.config.mode, ...allowed };
  for (const line of folder.packets) {
    const protocol = line.packet.protocol.toLowerCase() as 'tcp' | 'udp' | 'sctp';
    const own = joinHostPort(line.packet.dst, line.packet.dport);
    const walks = (line.srcs ?? [line.packet.src]).map((src) => {
      const packet = { ...line.packet, src, protocol };
      const outcome = rules.walk(packet);
      if (outcome === null) throw new Error('Rules walk every packet');
      const { want } = comparePacket(forwarding.expect(packet).outcomes, outcome, packet, site);
      return { outcome, want };
    });
    const want = walks[0]?.want ?? null;
    const isOpen = walks.some(
      ({ outcome: { unknown, destinations } }) =>
        unknown.length > 0 ||
        // A translation to where the packet goes anyway leaves no trace.
        destinations.has(own) ||
        [...destinations].some(([name, it]) => it.affinity || !/^[\d.[]/.test(name)),
    );
    if (want === null || want.kind === 'pass') continue;
    if (isOpen || line.inconclusive !== undefined) {
      sums.skipped++;
      continue;
    }
    const shares = walks.map(({ outcome }) => impactOfPacket(want, outcome).misrouted);
    const share = shares.reduce((sum, it) => sum + it, 0) / shares.length;
    sums.packets++;
    sums.computed += share * line.attempts;
    const counted = countMisrouted(line, want);
    sums.counted += counted;
    const { frontend } = forwarding.expect({ ...line.packet, protocol });
    if (counted > 0 && frontend !== null) {
      misrouted.add(`${frontend.port.namespace}/${frontend.port.service}`);
    }
    sums.variance += share * (1 - share) * line.attempts;
  }
  const { services = null } = auditFolder(folder, 'by a file')?.audit.impact ?? {};
  return { ...sums, misrouted, services };
}

/** The comparisons of the nodes with faults. */
const compared: ({ readonly path: string } & ReturnType<typeof compareFolder>)[] = [];

/** Called with a folder whose packets were walked, so that none is walked twice. */
function compareFault(folder: Folder): void {
  const { path, hasBothBackends, packets } = folder;
  const [kind = ''] = relative(here, path).split(sep);
  if (!['faults', 'pairs'].includes(kind) || hasBothBackends || packets.length === 0) return;
  compared.push({ path, ...compareFolder(folder) });
}

/** What the audits find if only the rules show the configuration of kube-proxy. */
const byRules = { problems: [] as string[], folders: new Set<string>() };

describe('walks agree with real kernels, and findings with the faults of nodes', () => {
  const nodes = [...foldersBelow(here), ...ciliumFoldersBelow(here)];
  const groups = Map.groupBy(nodes, (path) => relative(here, dirname(path)));
  const codes = new Set<string>();
  const total = emptySummary();
  const auditAgain = (folder: Folder): void => {
    byRules.folders.add(folder.path);
    checkAudit(folder, (line) => byRules.problems.push(line), new Set(), 'by its rules');
    compareFault(folder);
  };

  test.each([...groups])('%s', (_, folders) => {
    const problems: string[] = [];
    const summary = walkFolders(folders, (line) => problems.push(line), codes, auditAgain);
    expect(problems).toEqual([]);
    addCounts(total, summary, 1);
  });

  test('all folders have few unknown packets and every finding, except those about peers', () => {
    expect(isTrue(total)).toBe(true);
    expect(total.packets).toBeGreaterThan(10_000);
    const ofNodes = Object.entries(catalogue).filter(([, { output }]) => output === 'node');
    const unseen = ofNodes.map(([code]) => code).filter((code) => !codes.has(code));
    expect(unseen).toEqual(['node-unlike-others']);
  });
});

test('findings are the same if only the rules show the configuration of kube-proxy', () => {
  expect(byRules.problems).toEqual([]);
  expect([...byRules.folders].sort()).toEqual(foldersBelow(here).sort());
  expect(byRules.folders.size).toBeGreaterThan(100);
});

test('the share of misrouted connections is that of the packets of real kernels', () => {
  const problems: string[] = [];
  const total = { packets: 0, skipped: 0, misrouted: 0, partial: 0 };
  for (const { path, computed, counted, variance, packets, skipped } of compared) {
    total.packets += packets;
    total.skipped += skipped;
    total.misrouted += counted;
    if (variance > 0) total.partial++;
    // Five standard deviations of the count, and the rounding of probabilities.
    const allowed = 5 * Math.sqrt(variance) + 1e-3;
    if (Math.abs(computed - counted) > allowed) {
      problems.push(`${path}: ${counted} of ${packets} packets, computed ${computed}`);
    }
  }
  expect(problems).toEqual([]);
  expect(total.packets).toBeGreaterThan(7000);
  expect(total.skipped).toBeLessThan(0.1 * total.packets);
  expect(total.misrouted).toBeGreaterThan(10_000);
  // Folders where only a part of the connections of some packet is misrouted.
  expect(total.partial).toBeGreaterThan(20);
});

test('a Service has an impact on its node if the kernel misroutes its packets', () => {
  const problems: string[] = [];
  let found = 0;
  for (const { path, misrouted, services } of compared) {
    for (const key of misrouted) {
      found++;
      if (!((services?.get(key)?.misrouted ?? 0) > 0)) problems.push(`${path}: ${key}`);
    }
  }
  expect(problems).toEqual([]);
  expect(found).toBeGreaterThan(100);
});
