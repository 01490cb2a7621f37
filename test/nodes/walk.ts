// Holds the walker against real kernels: `npm run -s walk -- DIR…` finds all folders of recordings
// and faults below the given ones (a folder with proxy-config.yaml or fault.json), walks every
// packet of packets.ndjson through the folder's dump, and compares with what the kernel did. One
// line per disagreement with the rules that led there, last a JSON summary. Then it audits the node
// (audit.ts): sound ones must be clean, violations must be found. Nothing here looks at the names
// of folders, at classes of faults or at notes.

import { existsSync } from 'node:fs';

import type { AuditCounts } from './audit.ts';
import { checkAudit } from './audit.ts';
import { foldersBelow, readFolder } from './folder.ts';
import type { PacketCounts } from './packets.ts';
import { checkPackets } from './packets.ts';

export interface Summary extends PacketCounts, AuditCounts {
  recordings: number;
}

/** Walks all folders below these; `codes` takes up what was found on their nodes. */
export function walkFolders(
  paths: readonly string[],
  report: (line: string) => void,
  codes = new Set<string>(),
): Summary {
  const summary = {
    recordings: 0,
    packets: 0,
    wrong: 0,
    unknown: 0,
    foreignPackets: 0,
    foreignUnknown: 0,
    faults: 0,
    falseFindings: 0,
    missed: 0,
    misplaced: 0,
  };
  for (const path of paths.flatMap((path) => foldersBelow(path))) {
    const folder = readFolder(path);
    const counts = checkPackets(folder, report);
    summary.recordings++;
    for (const key of Object.keys(counts) as (keyof PacketCounts)[]) summary[key] += counts[key];
    const audit = checkAudit(folder, report, codes);
    for (const key of Object.keys(audit) as (keyof AuditCounts)[]) summary[key] += audit[key];
  }
  return summary;
}

/** Nothing wrong, and little unknown; rules of others may leave more open. */
export function isTrue(summary: Summary): boolean {
  const { packets, wrong, unknown, foreignPackets, foreignUnknown } = summary;
  if (summary.falseFindings + summary.missed + summary.misplaced > 0) return false;
  const own = packets - foreignPackets;
  return wrong === 0 && unknown <= 0.01 * own && foreignUnknown <= 0.1 * foreignPackets;
}

if (import.meta.main) {
  const paths = process.argv.slice(2);
  const missing = paths.filter((path) => !existsSync(path));
  if (paths.length === 0 || missing.length > 0) {
    console.error(`Usage: walk DIR…${missing.map((path) => `\nNo such folder: ${path}`).join('')}`);
    process.exitCode = 2;
  } else {
    const summary = walkFolders(paths, (line) => console.log(line));
    console.log(JSON.stringify(summary));
    process.exitCode = isTrue(summary) ? 0 : 1;
  }
}
