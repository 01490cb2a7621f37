// The load balancing maps of Cilium on a node: where they are pinned, how bpftool reads them, and
// what they do. Cilium pins them in the folder tc/globals of the BPF file system (TCGlobalsPath of
// pkg/bpf/bpffs_linux.go and the names of pkg/loadbalancer/maps/types.go, cilium@v1.20.2).
//
// One bpftool reads all maps, by commands on its standard input. It opens pins, which needs no
// capability since Linux 5.19, and CAP_BPF before. Left out are inner Maglev tables: they are not
// pinned, only CAP_SYS_ADMIN may open them, and each has the size of 16,381 backends.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';

import { formatCIDR } from '../model/ip.ts';
import { mapNames, readBpftoolBatch } from '../rules/cilium/bpftool-dump.ts';
import { ciliumConfigIn } from '../rules/cilium/infer-config.ts';
import { loadBalancerOf } from '../rules/cilium/load-balancer.ts';
import { frontendsInMaps, rangesInMaps } from '../rules/cilium/packet-outcome.ts';
import { keyOf } from '../rules/report/digest.ts';
import type { RuleFrontend } from '../rules/report/frontends.ts';

/** Maps of a Cilium that is newer than the layouts that are known. */
const newer = /^cilium_lb[46]_(?:services_v(?!2$)|backends_v(?![23]$))\d+$/;

/**
 * The maps in a folder. `commands` are for bpftool; '' if Cilium has none there. `failure`: why the
 * folder was not read, as by an agent that reads only the rules of kube-proxy.
 */
export function pinnedMaps(folder: string) {
  const { names, failure } = namesIn(folder);
  const unknown = names.filter((name) => newer.test(name));
  if (unknown.length > 0) {
    const problem = `Cilium has maps of a layout that is not known: ${unknown.join(', ')}`;
    return { commands: '', problem, failure };
  }
  const maps = names.filter((name) => mapNames.has(name));
  const isServing = maps.some((name) => name.endsWith('_services_v2'));
  const commands = maps.map((name) => `map dump pinned ${join(folder, name)}\n`).join('');
  return { commands: isServing ? commands : '', problem: null, failure };
}

/** In order, so that dumps of equal maps are equal. */
function namesIn(folder: string): { names: string[]; failure: string | null } {
  try {
    return { names: readdirSync(folder).sort(), failure: null };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return { names: [], failure: code === 'ENOENT' ? null : message };
  }
}

/** The load balancer in the output of bpftool. @throws DumpError where it is none. */
export function readCiliumRules(text: string) {
  const { entries } = readBpftoolBatch(text);
  const cilium = ciliumConfigIn(entries);
  const balancer = loadBalancerOf(entries);
  const all = frontendsInMaps(balancer);
  const keys = new Set(all.map(keyOf));
  const served = new Set(cilium.nodePortAddresses);
  // A node port has an entry at each address of the node; the one for any address has them.
  const shown = (it: RuleFrontend): RuleFrontend => {
    const any = { ...it, address: null };
    return it.address !== null && served.has(it.address) && keys.has(keyOf(any)) ? any : it;
  };
  /** By the keys of frontends: the source ranges that the maps check. */
  const sourceRanges: Record<string, string[]> = {};
  for (const frontend of all) {
    const { address, port, protocol } = frontend;
    if (address === null) continue;
    const ranges = rangesInMaps(balancer, { address, port, protocol });
    if (ranges.length === 0) continue;
    const key = keyOf(shown(frontend));
    // The addresses of a node port have one key.
    const united = new Set([...(sourceRanges[key] ?? []), ...ranges.map(formatCIDR)]);
    sourceRanges[key] = [...united];
  }
  return { cilium, balancer, frontends: all.filter((it) => shown(it) === it), sourceRanges };
}
