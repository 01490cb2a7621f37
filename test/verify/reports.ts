// Makes reports of an agent from the dumps of a recording, by the agent's own code, and answers
// what the auditor asks about packets.

import { createHash } from 'node:crypto';

import { readReport } from '../../src/agent/client/report.ts';
import type { NodeReportEntry } from '../../src/agent/client/scraper.ts';
import { programs } from '../../src/agent/collect.ts';
import type { CollectedDump } from '../../src/agent/collect.ts';
import type { NodeFacts } from '../../src/agent/node-facts.ts';
import { createReport, parseRules, walkerAt } from '../../src/agent/report.ts';
import type { Auditor } from '../../src/auditor/auditor.ts';
import type { NodeRulesEntry } from '../../src/cluster/decode/entry.ts';
import type { Node } from '../../src/model/objects.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { packetText } from '../../src/rules/report/digest.ts';
import { decodeOutcomes, encodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';

/** Seconds from one report to the next, at most. */
const lasting = 30;

/** The program whose output a dump is. */
function programOf({ tool, family }: NodeRulesEntry): CollectedDump['program'] {
  const found = programs.find(({ prints, family: short }) =>
    tool === 'nft'
      ? prints === 'nft'
      : prints === 'iptables-save' && short === (family === 'IPv4' ? 'ip' : 'ip6'),
  );
  if (found === undefined) throw new Error(`No program prints ${tool} of ${family}`);
  return found;
}

/** The agents of all nodes: each line about rules becomes a report to the auditor. */
export function createReporter(auditor: Auditor) {
  const dumps = new Map<string, Map<string, CollectedDump>>();
  /** Nodes whose last report was not enough: outcomes belong to one round. */
  const short = new Set<string>();
  let round = 0;
  return (line: NodeRulesEntry, node: Node | undefined): void => {
    const own = dumps.get(line.node) ?? new Map<string, CollectedDump>();
    dumps.set(line.node, own);
    if (line.text !== null) {
      const bytes = Buffer.from(line.text);
      own.set(`${line.tool} ${line.family}`, { program: programOf(line), bytes });
    }
    if (node === undefined || auditor.serviceAuditor() === null) return;
    const all = [...own.values()];
    const { addresses, podCIDRs } = node;
    const facts: NodeFacts = {
      ...{ node: line.node, localAddresses: [...addresses], interfaces: null, routes: null },
      ...{ nodeIPs: [...addresses], podCIDRs },
    };
    const { rules, problems } = parseRules(all, facts);
    const text = JSON.stringify(createReport(null, facts, { states: {}, problems }, rules));
    const hash = createHash('sha256').update(text);
    for (const { bytes } of all) hash.update(bytes);
    const digest = hash.digest('hex');
    const later = `${digest} ${round++}`;
    let needed: readonly Packet[] = [];
    const entry: NodeReportEntry = {
      ...{ kind: 'node-report', at: line.at, node: line.node, seenAt: line.dumpedAt, lasting },
      ...{
        etag: digest,
        version: short.has(line.node) ? later : digest,
        report: runToEnd(readReport(JSON.parse(text))),
        outcomes: null,
      },
      onNeed: (packets) => void (needed = packets),
    };
    auditor.take(entry);
    short.delete(line.node);
    if (needed.length === 0 || rules === null) return;
    short.add(line.node);
    const walked = encodeOutcomes(needed.map(walkerAt(rules, facts)));
    const outcomes = runToEnd(decodeOutcomes(JSON.parse(JSON.stringify(walked))));
    const pairs = needed.flatMap((packet, at) => {
      const outcome = outcomes[at];
      return outcome === undefined ? [] : [[packetText(packet), outcome] as const];
    });
    auditor.take({ ...entry, version: later, outcomes: new Map(pairs), onNeed: () => undefined });
  };
}
