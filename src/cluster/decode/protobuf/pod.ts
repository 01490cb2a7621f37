// Protobuf by hand: pods, of which there are more than of all else, and larger.
//
// Messages: Pod, PodSpec, Container, ContainerPort, PodStatus and PodCondition of
// k8s.io/api@v0.36.3 core/v1 (generated.proto). What is read is what project.ts reads. The ports of
// a container are looked up by their bytes: all pods of a template have the same.

import type { ContainerPort, Pod } from '../../../model/objects.ts';
import type { PodSpec, PodStatus, SliceMeta } from '../build-objects.ts';
import { podOf } from '../build-objects.ts';
import { internList } from '../intern.ts';
import type { ReadyCondition } from '../json-fields.ts';
import type { Known } from '../json-objects.ts';
import {
  bits,
  noItems,
  pass,
  passRow,
  readMeta,
  readMoment,
  readName,
  readWord,
  unexpected,
} from './metadata.ts';
import type { Cursor } from './wire.ts';
import {
  cached,
  createByteCache,
  readBool,
  readEnd,
  readInt32,
  readTag,
  readText,
  tagOf,
  varintTagOf,
} from './wire.ts';

/** The message Pod from the cursor to `end`; throws WrongType where it is not as expected. */
export function readPod(
  cursor: Cursor,
  end: number,
  at: number,
  previousPod: Known['previousPod'],
): Pod {
  let meta: SliceMeta | null = null;
  let [spec, status] = [noSpec, noStatus];
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1) && meta === null) meta = readMeta(cursor, readEnd(cursor, end), false);
    else if (tag === tagOf(2) && spec === noSpec) spec = readPodSpec(cursor, readEnd(cursor, end));
    else if (tag === tagOf(3) && status === noStatus) {
      status = readPodStatus(cursor, readEnd(cursor, end));
    } else pass(cursor, tag, end, bits(1, 2, 3));
  }
  if (meta === null) throw unexpected();
  return podOf(meta, at, spec, status, previousPod);
}

const noSpec: PodSpec = {
  node: '',
  hostNetwork: false,
  hostname: '',
  subdomain: '',
  ports: noItems,
};

const noStatus: PodStatus = { phase: '', ready: undefined, podIP: '', podIPs: noItems };

const specFields = bits(2, 10, 11, 16, 17, 20);

function readPodSpec(cursor: Cursor, end: number): PodSpec {
  let [node, hostname, subdomain] = ['', '', ''];
  let hostNetwork = false;
  let ports: readonly ContainerPort[] = noItems;
  let sidecars: readonly ContainerPort[] = noItems;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    switch (tag) {
      case tagOf(2):
        ports = joined(ports, readContainer(cursor, readEnd(cursor, end), false));
        break;
      case tagOf(10):
        node = readWord(cursor, end);
        break;
      case varintTagOf(11):
        hostNetwork = readBool(cursor, end);
        break;
      case tagOf(16):
        hostname = readText(cursor, end);
        break;
      case tagOf(17):
        subdomain = readWord(cursor, end);
        break;
      case tagOf(20):
        sidecars = joined(sidecars, readContainer(cursor, readEnd(cursor, end), true));
        break;
      default:
        pass(cursor, tag, end, specFields);
    }
  }
  return { node, hostNetwork, hostname, subdomain, ports: joined(ports, sidecars) };
}

/** What two lists in a row are together; both are interned, and so is the result. */
function joined(
  first: readonly ContainerPort[],
  second: readonly ContainerPort[],
): readonly ContainerPort[] {
  if (second.length === 0) return first;
  if (first.length === 0) return second;
  let after = joins.get(first);
  if (after === undefined) joins.set(first, (after = new WeakMap()));
  const known = after.get(second);
  if (known !== undefined) return known;
  const both = internList([...first, ...second]);
  after.set(second, both);
  return both;
}

const portLists = createByteCache<readonly ContainerPort[]>(4096, 1024 * 1024);
const sidecarLists = createByteCache<readonly ContainerPort[]>(1024, 256 * 1024);

type Ports = readonly ContainerPort[];
const joins = new WeakMap<Ports, WeakMap<Ports, Ports>>();

/** The named ports of a container; of an init container, only if it is restartable. */
function readContainer(cursor: Cursor, end: number, isInit: boolean): readonly ContainerPort[] {
  let [from, to] = [0, 0];
  let isAlways = false;
  while (cursor.at < end) {
    const begin = cursor.at;
    const tag = readTag(cursor, end);
    if (tag === tagOf(6)) {
      if (to !== 0) throw unexpected();
      from = begin;
      to = passRow(cursor, tag, end);
    } else if (tag === tagOf(24)) isAlways = readWord(cursor, end) === 'Always';
    else pass(cursor, tag, end, bits(6, 24));
  }
  if (to === 0 || (isInit && !isAlways)) return noItems;
  return isInit
    ? cached(sidecarLists, cursor.bytes, from, to, makeSidecarPorts)
    : cached(portLists, cursor.bytes, from, to, makePorts);
}

const makePorts = (bytes: Buffer, from: number, to: number): readonly ContainerPort[] =>
  internList(containerPorts({ bytes, at: from }, to, false));

const makeSidecarPorts = (bytes: Buffer, from: number, to: number): readonly ContainerPort[] =>
  internList(containerPorts({ bytes, at: from }, to, true));

function containerPorts(cursor: Cursor, to: number, sidecar: boolean): ContainerPort[] {
  const ports: ContainerPort[] = [];
  while (cursor.at < to) {
    readTag(cursor, to);
    const end = readEnd(cursor, to);
    let [name, protocol] = ['', ''];
    let port = 0;
    while (cursor.at < end) {
      const tag = readTag(cursor, end);
      if (tag === tagOf(1)) name = readWord(cursor, end);
      else if (tag === varintTagOf(3)) port = readInt32(cursor, end);
      else if (tag === tagOf(4)) protocol = readWord(cursor, end);
      else pass(cursor, tag, end, bits(1, 3, 4));
    }
    if (name !== '') ports.push({ name, protocol: protocol || 'TCP', port, sidecar });
  }
  return ports;
}

function readPodStatus(cursor: Cursor, end: number): PodStatus {
  let [phase, podIP] = ['', ''];
  let ready: ReadyCondition | undefined;
  let podIPs: string[] | null = null;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) phase = readWord(cursor, end);
    else if (tag === tagOf(2)) {
      const to = readEnd(cursor, end);
      ready ??= readCondition(cursor, to);
      cursor.at = to;
    } else if (tag === tagOf(6)) podIP = readText(cursor, end);
    else if (tag === tagOf(12)) {
      const ip = readName(cursor, readEnd(cursor, end));
      if (podIPs === null) podIPs = [ip];
      else podIPs.push(ip);
    } else pass(cursor, tag, end, bits(1, 2, 6, 12));
  }
  return { phase, ready, podIP, podIPs: podIPs ?? noItems };
}

/** The condition if it is of type Ready. */
function readCondition(cursor: Cursor, end: number): ReadyCondition | undefined {
  let [type, status] = ['', ''];
  let since: number | null = null;
  while (cursor.at < end) {
    const tag = readTag(cursor, end);
    if (tag === tagOf(1)) {
      type = readWord(cursor, end);
      if (type !== 'Ready') return undefined;
    } else if (tag === tagOf(2)) status = readWord(cursor, end);
    else if (tag === tagOf(4)) since = readMoment(cursor, end);
    else pass(cursor, tag, end, bits(1, 2, 4));
  }
  return type === 'Ready' ? { status, since } : undefined;
}
