// Reads Cilium's maps as bpftool prints them: a JSON object with the full name of each map and its
// entries, `[{"key": ["0x0a", …], "value": ["0x00", …]}]` (`bpftool -j map dump`). The inner tables
// of Maglev have the names `cilium_maglev_inner:ID`. A second form is what `bpftool -j batch`
// prints for `map dump pinned PATH`: the maps that there are on a node, without the inner tables,
// which only CAP_SYS_ADMIN can read. bpftool-scan.ts reads exactly what bpftool prints, and a JSON
// parser all that has another form, such as blanks.
//
// Layouts: pkg/loadbalancer/maps/types.go, cilium@v1.20.2. Addresses, ports and frontend ids are in
// network byte order, other numbers in that of the host, which is little-endian.

import { isFields } from '../../model/collections.ts';
import { type CIDR, formatAddress, networkOf } from '../../model/ip.ts';
import { DumpError } from '../ruleset.ts';
import { type ScannedMap, scanMaps } from './bpftool-scan.ts';
import type { MapAddress, MapEntry, MapsDump } from './map-entries.ts';
import { protocolNumbers, serviceFlags } from './map-entries.ts';

type Family = MapAddress['family'];
type Bytes = readonly number[];
type Fields = Readonly<Record<string, unknown>>;

type Pair = readonly [key: Bytes, value: Bytes];

/** The maps of a dump, with the bytes of keys and values. */
interface Maps {
  readonly names: readonly string[];
  /** A pair is valid until the next one. Throws DumpError as `parsedMaps` does. */
  entriesOf(name: string): Iterable<Pair>;
}

/** The entry of a map of one family, from the bytes of its key and its value. */
type ReadEntry = (key: Bytes, value: Bytes, family: Family) => MapEntry;

interface MapLayout {
  /** Bytes of key and value; those of an address come on top. */
  readonly key: number;
  readonly value: number;
  readonly addressIn: 'key' | 'value' | null;
  readonly read: ReadEntry;
}

const bySuffix: Readonly<Record<string, MapLayout>> = {
  services_v2: { key: 8, value: 12, addressIn: 'key', read: serviceEntry },
  backends_v3: { key: 4, value: 8, addressIn: 'value', read: backendEntry },
  reverse_nat: { key: 2, value: 2, addressIn: 'value', read: reverseNatEntry },
  source_range: { key: 8, value: 1, addressIn: 'key', read: sourceRangeEntry },
};

const matchMap = 'cilium_lb_affinity_match';

/** The names of all maps that are read, without the inner tables of Maglev. */
export const mapNames: ReadonlySet<string> = new Set([
  ...['cilium_lb4_', 'cilium_lb6_'].flatMap((prefix) =>
    [...Object.keys(bySuffix), 'maglev'].map((suffix) => prefix + suffix),
  ),
  matchMap,
]);

/** @throws DumpError where the text is no such dump, or a map has another layout. */
export function readBpftoolDump(text: string): MapsDump {
  return readMaps(scannedMaps(scanMaps(text, 'object')) ?? parsedMaps(parseMaps(text)), true);
}

/** @throws DumpError where the text is no such output, or a map has another layout. */
export function readBpftoolBatch(text: string): MapsDump {
  return readMaps(scannedMaps(scanMaps(text, 'batch')) ?? parsedMaps(mapsInBatch(text)), false);
}

function mapsInBatch(text: string): Fields {
  const maps: Record<string, unknown> = {};
  for (const { command, output } of parseBatch(text)) {
    const name = String((Array.isArray(command) ? command : []).at(-1)).replace(/^.*\//, '');
    const failure = failureIn(output);
    if (failure !== null) throw new DumpError(`expected the map ${name}`, 1, failure);
    maps[name] = output;
  }
  return maps;
}

/** Maps that Cilium has only with some flags. A dump that is not `isWhole` may lack them. */
const optional = ['source_range', 'maglev'];

function readMaps(maps: Maps, isWhole: boolean): MapsDump {
  const entries: MapEntry[] = [];
  const families: ('IPv4' | 'IPv6')[] = [];
  for (const [family, digit] of [
    ['ip', 4],
    ['ip6', 6],
  ] as const) {
    const prefix = `cilium_lb${digit}_`;
    const names = maps.names.filter((name) => name.startsWith(prefix));
    if (names.length === 0) continue;
    families.push(digit === 4 ? 'IPv4' : 'IPv6');
    const isThere = (suffix: string): boolean =>
      isWhole || !optional.includes(suffix) || names.includes(prefix + suffix);
    for (const suffix of Object.keys(bySuffix).filter(isThere)) {
      readMap(maps, prefix + suffix, family, entries);
    }
    if (isThere('maglev')) readMaglev(maps, `${prefix}maglev`, family, isWhole, entries);
  }
  if (families.length === 0)
    throw new DumpError('expected the maps cilium_lb4_ or cilium_lb6_', 1, '');
  const matches = isWhole || maps.names.includes(matchMap) ? maps.entriesOf(matchMap) : [];
  for (const [key, value] of matches) {
    checkSize(matchMap, key.length === 8 && value.length === 1);
    entries.push({ kind: 'affinity match', backend: little(key, 0, 4), id: big(key, 4, 2) });
  }
  if (!isWhole) checkNeeded(entries, maps.names);
  return { entries, families };
}

/** @throws DumpError where a map is missing that frontends use. */
function checkNeeded(entries: readonly MapEntry[], names: readonly string[]): void {
  const check = (name: string): void => {
    if (!names.includes(name)) throw new DumpError(`expected the map ${name}`, 1, '');
  };
  for (const entry of entries) {
    if (entry.kind !== 'service' || entry.slot !== 0) continue;
    const prefix = entry.family === 'ip' ? 'cilium_lb4_' : 'cilium_lb6_';
    if ((entry.flags & serviceFlags.sourceRanges) !== 0) check(`${prefix}source_range`);
    if ((entry.flags & serviceFlags.affinity) !== 0) check(matchMap);
  }
}

function parseMaps(text: string): Fields {
  const parsed = parseJSON(text);
  if (isFields(parsed)) return parsed;
  throw new DumpError('expected a JSON object with the maps of Cilium', 1, text);
}

function parseBatch(text: string): readonly Fields[] {
  const parsed = parseJSON(text);
  if (Array.isArray(parsed) && parsed.every(isFields)) return parsed;
  throw new DumpError('expected the output of bpftool -j batch', 1, text);
}

function parseJSON(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Of an entry that was deleted between its key and its value. */
const gone = 'No such file or directory';

/** What bpftool prints instead of a map, or of the value of an entry. */
const failureIn = (output: unknown): string | null =>
  isFields(output) && typeof output.error === 'string' ? output.error : null;

function readMap(maps: Maps, name: string, family: Family, entries: MapEntry[]): void {
  const layout = bySuffix[name.slice('cilium_lb4_'.length)];
  if (layout === undefined) return;
  const width = family === 'ip' ? 4 : 16;
  const keySize = layout.key + (layout.addressIn === 'key' ? width : 0);
  const valueSize = layout.value + (layout.addressIn === 'value' ? width : 0);
  for (const [key, value] of maps.entriesOf(name)) {
    checkSize(name, key.length === keySize && value.length === valueSize);
    entries.push(layout.read(key, value, family));
  }
}

function checkSize(name: string, isExpected: boolean): void {
  if (!isExpected) throw new DumpError(`${name} has a layout that is not known`, 1, '');
}

const parsedMaps = (maps: Fields): Maps => ({
  names: Object.keys(maps),
  entriesOf: (name) => parsedEntries(maps, name),
});

function scannedMaps(maps: ReadonlyMap<string, ScannedMap> | null): Maps | null {
  if (maps === null) return null;
  return { names: [...maps.keys()], entriesOf: (name) => scannedEntries(maps, name) };
}

function* scannedEntries(maps: ReadonlyMap<string, ScannedMap>, name: string): Generator<Pair> {
  const map = maps.get(name);
  if (map === undefined) throw new DumpError(`expected the map ${name}`, 1, '');
  const { keySize, valueSize, bytes } = map;
  // Used for all entries: new ones would cost more than the rest.
  const [key, value] = [new Array<number>(keySize).fill(0), new Array<number>(valueSize).fill(0)];
  for (let at = 0; at < bytes.length;) {
    for (let index = 0; index < keySize; index++) key[index] = bytes[at++] ?? 0;
    for (let index = 0; index < valueSize; index++) value[index] = bytes[at++] ?? 0;
    yield [key, value];
  }
}

/** @throws DumpError where the map is missing, or is no list of keys and values. */
function* parsedEntries(maps: Fields, name: string): Generator<Pair> {
  const list = maps[name];
  if (!Array.isArray(list)) throw new DumpError(`expected the map ${name}`, 1, '');
  for (const entry of list as readonly unknown[]) {
    if (!isFields(entry)) throw new DumpError(`expected keys and values in ${name}`, 1, '');
    const failure = failureIn(entry.value);
    if (failure === gone) continue;
    if (failure !== null) throw new DumpError(`expected the entries of ${name}`, 1, failure);
    yield [bytesOf(entry.key, name), bytesOf(entry.value, name)];
  }
}

function bytesOf(list: unknown, name: string): Bytes {
  if (!Array.isArray(list)) throw new DumpError(`expected keys and values in ${name}`, 1, '');
  return list.map((text) => {
    const byte = printedBytes.get(text) ?? Number(text);
    if (byte >= 0 && byte <= 255) return byte;
    throw new DumpError(`expected bytes in ${name}`, 1, String(text));
  });
}

/** Bytes as bpftool prints them; a large node has millions. */
const printedBytes: ReadonlyMap<unknown, number> = new Map(
  Array.from({ length: 256 }, (_, byte) => [`0x${byte.toString(16).padStart(2, '0')}`, byte]),
);

function big(bytes: Bytes, at: number, length: number): number {
  let sum = 0;
  for (let index = at; index < at + length; index++) sum = sum * 256 + (bytes[index] ?? 0);
  return sum;
}

function little(bytes: Bytes, at: number, length: number): number {
  let sum = 0;
  for (let index = at + length - 1; index >= at; index--) sum = sum * 256 + (bytes[index] ?? 0);
  return sum;
}

function addressAt(bytes: Bytes, at: number, family: Family): number | bigint {
  if (family === 'ip') return big(bytes, at, 4);
  return bytes.slice(at, at + 16).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
}

const widthOf = (family: Family): number => (family === 'ip' ? 4 : 16);

const protocols = new Map(
  Object.entries(protocolNumbers).map(([name, number]) => [
    number as number,
    name as MapAddress['protocol'],
  ]),
);

function protocolOf(number: number): MapAddress['protocol'] {
  const protocol = protocols.get(number);
  if (protocol === undefined) throw new DumpError('a protocol is not known', 1, String(number));
  return protocol;
}

function serviceEntry(key: Bytes, value: Bytes, family: Family): MapEntry {
  const width = widthOf(family);
  return {
    kind: 'service',
    family,
    address: formatAddress(addressAt(key, 0, family)),
    port: big(key, width, 2),
    slot: little(key, width + 2, 2),
    protocol: protocolOf(key[width + 4] ?? -1),
    scope: key[width + 5] ?? 0,
    word: little(value, 0, 4),
    count: little(value, 4, 2),
    id: big(value, 6, 2),
    flags: little(value, 8, 2),
    quarantined: little(value, 10, 2),
  };
}

function backendEntry(key: Bytes, value: Bytes, family: Family): MapEntry {
  const width = widthOf(family);
  return {
    kind: 'backend',
    family,
    id: little(key, 0, 4),
    address: formatAddress(addressAt(value, 0, family)),
    port: big(value, width, 2),
    protocol: protocolOf(value[width + 2] ?? -1),
    cluster: little(value, width + 4, 2),
  };
}

function reverseNatEntry(key: Bytes, value: Bytes, family: Family): MapEntry {
  const address = formatAddress(addressAt(value, 0, family));
  const port = big(value, widthOf(family), 2);
  return { kind: 'reverse nat', family, id: big(key, 0, 2), address, port };
}

/** The length of a prefix includes the 32 bits of the id and its padding. */
function sourceRangeEntry(key: Bytes, _value: Bytes, family: Family): MapEntry {
  const range = networkOf(addressAt(key, 8, family), little(key, 0, 4) - 32);
  if (range === null)
    throw new DumpError('expected the prefix of a source range', 1, key.join(' '));
  const cidr: CIDR = { family: family === 'ip' ? 'IPv4' : 'IPv6', ...range };
  return { kind: 'source range', id: big(key, 4, 2), range: cidr };
}

/** The outer map has the id of an inner map, whose only value is the table. */
function readMaglev(
  maps: Maps,
  name: string,
  family: Family,
  isWhole: boolean,
  entries: MapEntry[],
): void {
  for (const [key, value] of maps.entriesOf(name)) {
    checkSize(name, key.length === 2 && value.length === 4);
    if (!isWhole) {
      entries.push({ kind: 'maglev', family, id: big(key, 0, 2), places: null });
      continue;
    }
    const inner = `cilium_maglev_inner:${little(value, 0, 4)}`;
    const places = new Map<number, number>();
    for (const [, table] of maps.entriesOf(inner)) {
      checkSize(inner, table.length % 4 === 0);
      for (let at = 0; at < table.length; at += 4) {
        const backend = little(table, at, 4);
        places.set(backend, (places.get(backend) ?? 0) + 1);
      }
    }
    entries.push({ kind: 'maglev', family, id: big(key, 0, 2), places });
  }
}
