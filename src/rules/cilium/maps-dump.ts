// Reads what `cilium-dbg shell -- lb/maps-dump` prints, one entry a line:
//
//   SVC: ID=4 ADDR=10.97.69.6:80/TCP SLOT=1 BEID=2 COUNT=0 QCOUNT=0 FLAGS=ClusterIP+non-routable
//
// Reference: DumpLBMaps of pkg/loadbalancer/maps/test_utils.go and ServiceFlags.String of
// pkg/loadbalancer/loadbalancer.go, cilium@v1.20.2. This output has no clusters of backends, and no
// family of Maglev tables, whose ids differ in the two families.

import { parseCIDR } from '../../model/ip.ts';
import { DumpError } from '../ruleset.ts';
import type { MapAddress, MapEntry, MapsDump } from './map-entries.ts';
import { checkProtocol, frontendKey, readMapAddress, serviceFlags } from './map-entries.ts';

/** @throws DumpError where a line is none of this output, or the last one is cut off. */
export function readMapsDump(text: string): MapsDump {
  const entries: MapEntry[] = [];
  if (!text.endsWith('\n')) throw new DumpError('the dump is cut off', 1, text.slice(-100));
  for (const [at, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      entries.push(...entriesIn(line.trim()));
    } catch (error) {
      if (!(error instanceof UnknownEntry)) throw error;
      throw new DumpError(`${error.message} is not known`, at + 1, line);
    }
  }
  const families = new Set(
    entries.map((entry) => ('family' in entry && entry.family === 'ip6' ? 'IPv6' : 'IPv4')),
  );
  return { entries, families: [...families] };
}

class UnknownEntry extends Error {}

function entriesIn(line: string): MapEntry[] {
  const [kind = '', ...words] = line.split(' ');
  const rest = words.join(' ');
  const field = (name: string): string => {
    const value = new RegExp(`(?:^| )${name}=(\\S*)`).exec(rest)?.[1];
    if (value === undefined) throw new UnknownEntry(`the entry without ${name}`);
    return value;
  };
  const number = (name: string): number => numberIn(field(name), name);
  if (kind === 'SVC:') return [serviceIn(rest, field, number)];
  const id = number('ID');
  if (kind === 'BE:') return [{ kind: 'backend', id, cluster: 0, ...addressIn(field('ADDR')) }];
  if (kind === 'REV:') {
    const { family, address, port } = addressIn(`${field('ADDR')}/ANY`);
    return [{ kind: 'reverse nat', id, family, address, port }];
  }
  if (kind === 'AFF:') return [{ kind: 'affinity match', id, backend: number('BEID') }];
  if (kind === 'SRCRANGE:') {
    const range = parseCIDR(field('CIDR'));
    if (range === null) throw new UnknownEntry('the source range');
    return [{ kind: 'source range', id, range }];
  }
  if (kind !== 'MAGLEV:') throw new UnknownEntry('the kind of entry');
  const places = new Map(
    [...rest.matchAll(/[[ ](\d+)\((\d+)\)/g)].map(([, backend, n]) => [Number(backend), Number(n)]),
  );
  return (['ip', 'ip6'] as const).map((family) => ({ kind: 'maglev', family, id, places }));
}

function numberIn(text: string, name: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw new UnknownEntry(`the number ${name}`);
}

/** The internal scope has `/i` behind the protocol. */
function addressIn(text: string): MapAddress {
  const address = readMapAddress(text.replace(/\/i$/, ''));
  if (address === null) throw new UnknownEntry('the address');
  return address;
}

const algorithms: Readonly<Record<string, number>> = { undef: 0, random: 1, maglev: 2 };

function serviceIn(
  rest: string,
  field: (name: string) => string,
  number: (name: string) => number,
): MapEntry {
  const slot = number('SLOT');
  const address = addressIn(field('ADDR'));
  checkProtocol(address);
  const scope = field('ADDR').endsWith('/i') ? 1 : 0;
  const flags = flagsIn(/ FLAGS=(?<flags>.*)$/.exec(rest)?.groups?.flags ?? '');
  const isProxied = (flags & serviceFlags.proxy) !== 0;
  const wordOf = (): number => {
    if (isProxied) return 0;
    const algorithm = algorithms[field('LBALG')];
    if (algorithm === undefined) throw new UnknownEntry('the algorithm');
    return algorithm * 2 ** 24 + number('AFFTimeout');
  };
  if (slot > 0) {
    const frontend = frontendKey(address, scope);
    return { kind: 'slots', frontend, slots: [slot, number('BEID')] };
  }
  return {
    kind: 'service',
    ...address,
    scope,
    word: wordOf(),
    count: number('COUNT'),
    quarantined: number('QCOUNT'),
    id: number('ID'),
    flags,
  };
}

const flagWords: Readonly<Record<string, number>> = {
  ClusterIP: 0,
  ExternalIPs: serviceFlags.externalIP,
  NodePort: serviceFlags.nodePort,
  LoadBalancer: serviceFlags.loadBalancer,
  HostPort: serviceFlags.hostPort,
  LocalRedirect: serviceFlags.localRedirect,
  Local: serviceFlags.externalLocal,
  InternalLocal: serviceFlags.internalLocal,
  'two-scopes': serviceFlags.twoScopes,
  sessionAffinity: serviceFlags.affinity,
  'non-routable': 0,
  'check source-range': serviceFlags.sourceRanges,
  deny: serviceFlags.deniesOrQuarantined,
  quarantined: serviceFlags.deniesOrQuarantined,
  '46x64': serviceFlags.otherFamily,
  'l7-load-balancer': serviceFlags.proxy,
  loopback: serviceFlags.loopback,
  'delegate-if-local': serviceFlags.loopback,
  dsr: serviceFlags.dsr,
};

function flagsIn(text: string): number {
  const words = text.split('+');
  let flags = words.includes('non-routable') ? 0 : serviceFlags.routable;
  for (const word of words) {
    const flag = flagWords[word];
    if (flag === undefined) throw new UnknownEntry(`the flag ${word}`);
    flags |= flag;
  }
  return flags;
}
