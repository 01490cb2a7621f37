// Reads Cilium's maps as bpftool prints them: a JSON object with the full name of each map and its
// entries, `[{"key": ["0x0a", …], "value": ["0x00", …]}]` (`bpftool -j map dump`). The inner tables
// of Maglev have the names `cilium_maglev_inner:ID`. A second form is what `bpftool -j batch`
// prints for `map dump pinned PATH`: the maps that there are on a node, without the inner tables,
// which only CAP_SYS_ADMIN can read. bpftool-scan.ts reads exactly what bpftool prints, and a JSON
// parser all that has another form, such as blanks.
//
// Layouts: pkg/loadbalancer/maps/types.go, cilium@v1.20.2. Addresses, ports and frontend ids are in
// network byte order, other numbers in that of the host, which is little-endian.

import { addCount, isFields } from '../../model/collections.ts';
import { type CIDR, formatAddress, networkOf } from '../../model/ip.ts';
import { DumpError } from '../ruleset.ts';
import { type MapTable, scanMaps } from './bpftool-scan.ts';
import type { MapAddress, MapEntry, MapsDump } from './map-entries.ts';
import { checkProtocol, frontendKey, protocolNumbers, serviceFlags } from './map-entries.ts';

type Family = MapAddress['family'];
type Fields = Readonly<Record<string, unknown>>;

/** The maps of a dump, with the bytes of keys and values. */
interface Maps {
  readonly names: readonly string[];
  /** Throws DumpError as `parsedTable` does. */
  tableOf(name: string): MapTable;
}

/** The entry of a map, from the offsets of its key and its value; null: it is part of another. */
type ReadEntry = (bytes: DataView, key: number, value: number) => MapEntry | null;

interface MapLayout {
  /** Bytes of key and value; those of an address come on top. */
  readonly key: number;
  readonly value: number;
  readonly addressIn: 'key' | 'value' | null;
  /** Returns a function that reads the entries of one map. */
  readonly reader: (family: Family) => ReadEntry;
}

const bySuffix: Readonly<Record<string, MapLayout>> = {
  services_v2: { key: 8, value: 12, addressIn: 'key', reader: serviceReader },
  backends_v3: { key: 4, value: 8, addressIn: 'value', reader: backendReader },
  reverse_nat: { key: 2, value: 2, addressIn: 'value', reader: reverseNatReader },
  source_range: { key: 8, value: 1, addressIn: 'key', reader: sourceRangeReader },
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
  if (isWhole || maps.names.includes(matchMap)) {
    readEntries(maps, matchMap, [8, 1], entries, (bytes, key) => {
      const [backend, id] = [bytes.getUint32(key, true), bytes.getUint16(key + 4)];
      return { kind: 'affinity match', backend, id };
    });
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
    if (entry.kind !== 'service') continue;
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
  const { key, value, addressIn, reader } = layout;
  const width = widthOf(family);
  const sizes = [
    key + (addressIn === 'key' ? width : 0),
    value + (addressIn === 'value' ? width : 0),
  ] as const;
  readEntries(maps, name, sizes, entries, reader(family));
}

function readEntries(
  maps: Maps,
  name: string,
  [keySize, valueSize]: readonly [number, number],
  entries: MapEntry[],
  read: ReadEntry,
): void {
  const table = maps.tableOf(name);
  const bytes = viewOf(table);
  const isExpected = table.keySize === keySize && table.valueSize === valueSize;
  checkSize(name, isExpected || bytes.byteLength === 0);
  for (let at = 0; at < bytes.byteLength; at += keySize + valueSize) {
    const entry = read(bytes, at, at + keySize);
    if (entry !== null) entries.push(entry);
  }
}

function checkSize(name: string, isExpected: boolean): void {
  if (!isExpected) throw new DumpError(`${name} has a layout that is not known`, 1, '');
}

const parsedMaps = (maps: Fields): Maps => ({
  names: Object.keys(maps),
  tableOf: (name) => parsedTable(maps, name),
});

function scannedMaps(maps: ReadonlyMap<string, MapTable> | null): Maps | null {
  if (maps === null) return null;
  const tableOf = (name: string): MapTable => {
    const table = maps.get(name);
    if (table === undefined) throw new DumpError(`expected the map ${name}`, 1, '');
    return table;
  };
  return { names: [...maps.keys()], tableOf };
}

/** @throws DumpError where the map is missing, or is no list of keys and values of one size. */
function parsedTable(maps: Fields, name: string): MapTable {
  const list = maps[name];
  if (!Array.isArray(list)) throw new DumpError(`expected the map ${name}`, 1, '');
  const pairs = (list as readonly unknown[]).flatMap((entry) => {
    if (!isFields(entry)) throw new DumpError(`expected keys and values in ${name}`, 1, '');
    const failure = failureIn(entry.value);
    if (failure === gone) return [];
    if (failure !== null) throw new DumpError(`expected the entries of ${name}`, 1, failure);
    return [[bytesOf(entry.key, name), bytesOf(entry.value, name)] as const];
  });
  const [keySize, valueSize] = [pairs[0]?.[0].length ?? 0, pairs[0]?.[1].length ?? 0];
  for (const [key, value] of pairs) {
    const isFilled = key.length > 0 && value.length > 0;
    checkSize(name, isFilled && key.length === keySize && value.length === valueSize);
  }
  return { keySize, valueSize, bytes: Uint8Array.from(pairs.flat(2)) };
}

function bytesOf(list: unknown, name: string): number[] {
  if (!Array.isArray(list)) throw new DumpError(`expected keys and values in ${name}`, 1, '');
  return list.map((text) => {
    const byte = printedBytes.get(text) ?? Number(text);
    if (Number.isInteger(byte) && byte >= 0 && byte <= 255) return byte;
    throw new DumpError(`expected bytes in ${name}`, 1, String(text));
  });
}

/** Bytes as bpftool prints them; a large node has millions. */
const printedBytes: ReadonlyMap<unknown, number> = new Map(
  Array.from({ length: 256 }, (_, byte) => [`0x${byte.toString(16).padStart(2, '0')}`, byte]),
);

const viewOf = ({ bytes }: MapTable): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

const addressAt = (bytes: DataView, at: number, family: Family): number | bigint =>
  family === 'ip'
    ? bytes.getUint32(at)
    : (bytes.getBigUint64(at) << 64n) + bytes.getBigUint64(at + 8);

const addressTextAt = (bytes: DataView, at: number, family: Family): string =>
  formatAddress(addressAt(bytes, at, family));

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

function serviceReader(family: Family): ReadEntry {
  const width = widthOf(family);
  /** The slots of each frontend, by the bytes of its key. There are too many for objects. */
  const known = new Map<string, number[]>();
  const words = new Array<number>(width / 2 + 2).fill(0);
  const addressOf = (bytes: DataView, key: number): MapAddress => ({
    family,
    address: addressTextAt(bytes, key, family),
    port: bytes.getUint16(key + width),
    protocol: protocolOf(bytes.getUint8(key + width + 4)),
  });
  return (bytes, key, value) => {
    const scope = bytes.getUint8(key + width + 5);
    const slot = bytes.getUint16(key + width + 2, true);
    const word = bytes.getUint32(value, true);
    if (slot === 0) {
      const place = addressOf(bytes, key);
      checkProtocol(place);
      return {
        kind: 'service',
        ...place,
        scope,
        word,
        count: bytes.getUint16(value + 4, true),
        id: bytes.getUint16(value + 6),
        flags: bytes.getUint16(value + 8, true),
        quarantined: bytes.getUint16(value + 10, true),
      };
    }
    // Without the slot, which lies between the port and the protocol.
    for (let at = 0; at < words.length; at++) {
      words[at] = bytes.getUint16(key + 2 * at + (2 * at > width ? 2 : 0));
    }
    const own = String.fromCharCode(...words);
    const others = known.get(own);
    if (others !== undefined) {
      others.push(slot, word);
      return null;
    }
    const slots = [slot, word];
    known.set(own, slots);
    return { kind: 'slots', frontend: frontendKey(addressOf(bytes, key), scope), slots };
  };
}

function backendReader(family: Family): ReadEntry {
  const width = widthOf(family);
  return (bytes, key, value) => ({
    kind: 'backend',
    family,
    id: bytes.getUint32(key, true),
    address: addressTextAt(bytes, value, family),
    port: bytes.getUint16(value + width),
    protocol: protocolOf(bytes.getUint8(value + width + 2)),
    cluster: bytes.getUint16(value + width + 4, true),
  });
}

function reverseNatReader(family: Family): ReadEntry {
  const width = widthOf(family);
  return (bytes, key, value) => {
    const [id, port] = [bytes.getUint16(key), bytes.getUint16(value + width)];
    return { kind: 'reverse nat', family, id, address: addressTextAt(bytes, value, family), port };
  };
}

/** The length of a prefix includes the 32 bits of the id and its padding. */
function sourceRangeReader(family: Family): ReadEntry {
  return (bytes, key, value) => {
    const range = networkOf(addressAt(bytes, key + 8, family), bytes.getUint32(key, true) - 32);
    if (range === null) {
      const text = new Uint8Array(bytes.buffer, bytes.byteOffset + key, value - key).join(' ');
      throw new DumpError('expected the prefix of a source range', 1, text);
    }
    const cidr: CIDR = { family: family === 'ip' ? 'IPv4' : 'IPv6', ...range };
    return { kind: 'source range', id: bytes.getUint16(key + 4), range: cidr };
  };
}

/** The outer map has the id of an inner map, whose only value is the table. */
function readMaglev(
  maps: Maps,
  name: string,
  family: Family,
  isWhole: boolean,
  entries: MapEntry[],
): void {
  readEntries(maps, name, [2, 4], entries, (bytes, key, value) => {
    const id = bytes.getUint16(key);
    const inner = `cilium_maglev_inner:${bytes.getUint32(value, true)}`;
    return { kind: 'maglev', family, id, places: isWhole ? placesIn(maps, inner) : null };
  });
}

function placesIn(maps: Maps, name: string): ReadonlyMap<number, number> {
  const table = maps.tableOf(name);
  const { keySize, valueSize } = table;
  checkSize(name, valueSize % 4 === 0);
  const bytes = viewOf(table);
  const places = new Map<number, number>();
  for (let at = 0; at < bytes.byteLength; at += valueSize) {
    at += keySize;
    for (let place = at; place < at + valueSize; place += 4) {
      addCount(places, bytes.getUint32(place, true), 1);
    }
  }
  return places;
}
