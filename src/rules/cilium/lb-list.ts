// Reads what these commands of Cilium print, one after the other in any order:
//
//   cilium-dbg bpf lb list -o json
//     {"10.96.0.1:80/TCP (1)": ["10.0.0.1:8080/TCP (4) (1)"]}
//   cilium-dbg bpf lb list --frontends -o json
//     {"10.96.0.1:80/TCP (1)": ["2 0[0] (4) [0x0 0x0]"]}
//   cilium-dbg bpf lb list --revnat -o json
//     {"4": ["10.96.0.1:80"]}
//   cilium-dbg bpf lb list --source-ranges -o json
//     {"10.0.0.0/8 (4)": [""]}
//   cilium-dbg bpf lb list --backends -o json
//     {"2": ["TCP://10.0.0.1"]}
//
// The first has the addresses of backends, the second their ids, counts and flags. A map without
// entries gives {}, which does not show its command. The last is optional and gives no entries: it
// shows whether a backend changed between the first two. Reference: cilium-dbg/cmd/bpf_lb_list.go
// and pkg/loadbalancer/maps/types.go, cilium@v1.20.2. The formats are those of Cilium 1.17 to 1.20.
//
// Left out: affinity matches and Maglev tables, which no form prints. Each backend in a slot of a
// frontend with affinity counts as matched.

import { parseCIDR, parseIP } from '../../model/ip.ts';
import { DumpError } from '../ruleset.ts';
import type { MapAddress, MapEntry, MapsDump } from './map-entries.ts';
import { checkProtocol, frontendKey, readMapAddress, serviceFlags } from './map-entries.ts';

type Lists = Readonly<Record<string, readonly string[]>>;

/** What one command printed; `empty`: of a map without entries. */
type Form = 'backends' | 'frontends' | 'revnat' | 'source-ranges' | 'ids' | 'empty';

/** The options of the commands whose output is required. */
const required = [
  ['backends', ''],
  ['frontends', '--frontends '],
  ['revnat', '--revnat '],
  ['source-ranges', '--source-ranges '],
] as const;

const serviceKey = /^(?<address>\S+\/[A-Z]+)(?<scope>\/i)? \((?<slot>\d+)\)$/;
const serviceValue =
  /^(?<word>\d+) (?<count>\d+)\[(?<rest>\d+)\] \((?<id>\d+)\) \[0x(?<low>\w+) 0x(?<high>\w+)\]$/;

/** Whether a text begins as this output does. */
export const isLbList = (text: string): boolean =>
  /^\s*\{\s*(?:"(?:\S+ \(\d+\)|\d+)": *\[|\}\s*\{)/.test(text);

/** @throws DumpError where a command is missing, or an entry has another form. */
export function readLbList(text: string): MapsDump {
  const objects = objectsIn(text).map((lists) => [formOf(lists), lists] as const);
  const found = new Map<Form, Lists>(objects);
  checkForms(objects.map(([form]) => form));
  const services = Object.entries(found.get('frontends') ?? {}).map(serviceEntry);
  const backends = backendEntries(services, found.get('backends') ?? {});
  checkIds(services, backends, found.get('ids'));
  const entries: MapEntry[] = [
    ...services.map(({ entry }) => entry),
    ...backends,
    ...affinityMatches(services),
    ...Object.entries(found.get('revnat') ?? {}).flatMap(reverseNatEntries),
    ...Object.keys(found.get('source-ranges') ?? {}).map(sourceRangeEntry),
  ];
  const families = new Set(services.map(({ family }) => (family === 'ip6' ? 'IPv6' : 'IPv4')));
  // Without frontends, the lists do not show the families of the node.
  return { entries, families: services.length === 0 ? ['IPv4', 'IPv6'] : [...families] };
}

/** Each required output is there, or an empty one in its place. */
function checkForms(forms: readonly Form[]): void {
  const missing = required.filter(([form]) => !forms.includes(form));
  const empty = forms.filter((form) => form === 'empty').length;
  // Both show the same map, so that it has no entries for both.
  const isHalf = forms.includes('backends') !== forms.includes('frontends');
  const [first] = missing;
  if (first === undefined || (missing.length <= empty && !isHalf)) return;
  const command = `cilium-dbg bpf lb list ${first[1]}-o json`;
  throw new DumpError(`expected the output of ${command}`, 1, '');
}

/** Compares the addresses that slots have with those that `--backends` has for their ids. */
function checkIds(
  services: readonly ListedService[],
  backends: readonly BackendEntry[],
  ids: Lists | undefined,
): void {
  if (ids === undefined) return;
  const addresses = new Map(backends.map(({ id, address }) => [id, address]));
  for (const { slot, word: id } of services) {
    if (slot === 0) continue;
    const listed = ids[id]?.[0] ?? '';
    const address = /^\w+:\/\/(?<address>[^@[]+)/.exec(listed)?.groups?.address ?? '';
    if (parseIP(address)?.text === addresses.get(id)) continue;
    throw new DumpError('a backend changed between two commands: run all again', 1, listed);
  }
}

/** Objects are printed with indentation, so that each ends with a line of its own. */
function objectsIn(text: string): Lists[] {
  return text
    .split(/(?<=^\{?\}) *$/m)
    .filter((part) => part.trim() !== '')
    .map((part) => {
      try {
        return JSON.parse(part) as Lists;
      } catch {
        throw new DumpError('expected the JSON of cilium-dbg bpf lb list', 1, part.trim());
      }
    });
}

function formOf(lists: Lists): Form {
  const [first] = Object.entries(lists);
  if (first === undefined) return 'empty';
  const [key, [value = '']] = first;
  if (/^\d+$/.test(key)) return value.includes('://') ? 'ids' : 'revnat';
  if (/^\S+\/\d+ \(\d+\)$/.test(key)) return 'source-ranges';
  return serviceValue.test(value) ? 'frontends' : 'backends';
}

/** A backend of another cluster has `10.0.0.1@2` as its address. */
function addressIn(text: string): MapAddress & { readonly cluster: number } {
  const place = readMapAddress(text.replace(/@\d+(?=\]:\d+\/)|(?<=^[^[:]+)@\d+(?=:\d+\/)/, ''));
  if (place === null) throw new DumpError('expected an address', 1, text);
  return { ...place, cluster: Number(/@(\d+)/.exec(text)?.[1] ?? 0) };
}

type BackendEntry = Extract<MapEntry, { kind: 'backend' }>;

/** An entry with the key that the list of backends has for it. */
type ListedService = ReturnType<typeof serviceEntry>;

function serviceEntry([key, [value = '']]: readonly [string, readonly string[]]) {
  const { address = '', scope: internal, slot: number } = serviceKey.exec(key)?.groups ?? {};
  const fields = serviceValue.exec(value)?.groups;
  if (fields === undefined) throw new DumpError('expected a frontend', 1, `${key}: ${value}`);
  const [place, scope, slot] = [addressIn(address), internal === undefined ? 0 : 1, Number(number)];
  checkProtocol(place);
  const { family } = place;
  const [word, id] = [Number(fields.word), Number(fields.id)];
  const flags = parseInt(fields.low ?? '', 16) + 256 * parseInt(fields.high ?? '', 16);
  const listed = { key, family, slot, word, id, flags };
  if (slot > 0) {
    const frontend = frontendKey(place, scope);
    return { ...listed, entry: { kind: 'slots', frontend, slots: [slot, word] } as const };
  }
  const entry = {
    kind: 'service' as const,
    ...place,
    scope,
    // Without Maglev tables, the algorithm in the upper byte decides nothing.
    word: word & 0xffffff,
    count: Number(fields.count),
    quarantined: Number(fields.rest),
    id,
    flags,
  };
  return { ...listed, entry };
}

/** The addresses of the backends whose ids the slots have; one that is gone has none. */
function backendEntries(services: readonly ListedService[], lists: Lists): BackendEntry[] {
  const found = new Map<number, BackendEntry>();
  for (const { key, slot, word: id } of services) {
    if (slot === 0 || found.has(id)) continue;
    const value = lists[key]?.[0];
    // The map may have changed between two commands.
    if (value === undefined) throw new DumpError('expected the backend of a slot', 1, key);
    if (/^backend \d+ not found$/.test(value)) continue;
    const address = /^(\S+) \(\d+\) \(\d+\)$/.exec(value)?.[1];
    if (address === undefined) throw new DumpError('expected a backend', 1, value);
    found.set(id, { kind: 'backend', id, ...addressIn(address) });
  }
  return [...found.values()];
}

function affinityMatches(services: readonly ListedService[]): MapEntry[] {
  return services
    .filter(({ slot, flags }) => slot > 0 && (flags & serviceFlags.affinity) !== 0)
    .map(({ id, word: backend }) => ({ kind: 'affinity match', id, backend }));
}

/** The ids of both families are in one list, with a value for each family. */
function reverseNatEntries([id, values]: readonly [string, readonly string[]]): MapEntry[] {
  return values.map((value) => {
    const { family, address, port } = addressIn(`${value}/ANY`);
    return { kind: 'reverse nat', id: Number(id), family, address, port };
  });
}

function sourceRangeEntry(key: string): MapEntry {
  const { range: text = '', id } = /^(?<range>\S+) \((?<id>\d+)\)$/.exec(key)?.groups ?? {};
  const range = parseCIDR(text);
  if (range === null) throw new DumpError('expected a source range', 1, key);
  return { kind: 'source range', id: Number(id), range };
}
