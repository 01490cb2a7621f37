// Reads protobuf messages of Kubernetes into plain objects, as JSON.parse reads the same in JSON.
//
// The schema is an excerpt of generated.proto in k8s.io/api@v0.36.3 core/v1 and discovery/v1 and
// k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1, pkg/runtime, pkg/util/intstr and pkg/api/resource,
// without `optional`. To read another field, add its line. Field names are those in JSON.
//
// Follows the decoders of k8s.io/api@v0.36.3 (generated.pb.go): a message that appears twice is
// merged, and a wrong wire type is an error. Unlike JSON, zero values are not left out, and a time
// is a Date, without nanoseconds (k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/time_proto.go).

import { WrongType } from '../json-fields.ts';
import * as wire from './wire.ts';

const schema = `
message Node { ShortMeta metadata = 1; NodeSpec spec = 2; NodeStatus status = 3; }
message NodeSpec { string podCIDR = 1; repeated string podCIDRs = 7; }
message NodeStatus {
  map<string, Quantity> allocatable = 2; repeated Condition conditions = 4;
  repeated NodeAddress addresses = 5; NodeSystemInfo nodeInfo = 7;
}
message NodeAddress { string type = 1; string address = 2; }
message NodeSystemInfo { string kubeletVersion = 7; }

message Service { ObjectMeta metadata = 1; ServiceSpec spec = 2; ServiceStatus status = 3; }
message ServiceSpec {
  repeated ServicePort ports = 1; map<string, string> selector = 2; string clusterIP = 3;
  string type = 4; repeated string externalIPs = 5; string sessionAffinity = 7;
  repeated string loadBalancerSourceRanges = 9; string externalTrafficPolicy = 11;
  int32 healthCheckNodePort = 12; bool publishNotReadyAddresses = 13;
  SessionAffinityConfig sessionAffinityConfig = 14; repeated string clusterIPs = 18;
  repeated string ipFamilies = 19; string internalTrafficPolicy = 22;
  string trafficDistribution = 23;
}
message ServicePort {
  string name = 1; string protocol = 2; int32 port = 3; IntOrString targetPort = 4;
  int32 nodePort = 5; string appProtocol = 6;
}
message SessionAffinityConfig { ClientIPConfig clientIP = 1; }
message ClientIPConfig { int32 timeoutSeconds = 1; }
message ServiceStatus { LoadBalancerStatus loadBalancer = 1; }
message LoadBalancerStatus { repeated LoadBalancerIngress ingress = 1; }
message LoadBalancerIngress { string ip = 1; string hostname = 2; string ipMode = 3; }

message Pod { ShortMeta metadata = 1; PodSpec spec = 2; PodStatus status = 3; }
message PodSpec {
  repeated Container containers = 2; string nodeName = 10; bool hostNetwork = 11;
  string hostname = 16; string subdomain = 17; repeated Container initContainers = 20;
}
message Container { repeated ContainerPort ports = 6; string restartPolicy = 24; }
message ContainerPort { string name = 1; int32 containerPort = 3; string protocol = 4; }
message PodStatus {
  string phase = 1; repeated Condition conditions = 2; string podIP = 6;
  repeated PodIP podIPs = 12;
}
message PodIP { string ip = 1; }

message Endpoints { ObjectMeta metadata = 1; repeated EndpointSubset subsets = 2; }
message EndpointSubset {
  repeated EndpointAddress addresses = 1; repeated EndpointAddress notReadyAddresses = 2;
  repeated SubsetPort ports = 3;
}
message EndpointAddress {
  string ip = 1; ObjectReference targetRef = 2; string hostname = 3; string nodeName = 4;
}
message SubsetPort { string name = 1; int32 port = 2; string protocol = 3; string appProtocol = 4; }

message EndpointSlice {
  ObjectMeta metadata = 1; repeated Endpoint endpoints = 2; repeated SlicePort ports = 3;
  string addressType = 4;
}
message Endpoint {
  repeated string addresses = 1; EndpointConditions conditions = 2; string hostname = 3;
  ObjectReference targetRef = 4; string nodeName = 6; string zone = 7; EndpointHints hints = 8;
}
message EndpointConditions { bool ready = 1; bool serving = 2; bool terminating = 3; }
message EndpointHints { repeated Hint forZones = 1; repeated Hint forNodes = 2; }
message Hint { string name = 1; }
message SlicePort { string name = 1; string protocol = 2; int32 port = 3; string appProtocol = 4; }

message ObjectMeta {
  string name = 1; string namespace = 3; string uid = 5; string resourceVersion = 6;
  int64 generation = 7; Time creationTimestamp = 8; Time deletionTimestamp = 9;
  int64 deletionGracePeriodSeconds = 10; map<string, string> labels = 11;
  map<string, string> annotations = 12; repeated OwnerReference ownerReferences = 13;
}
message ShortMeta {
  string name = 1; string namespace = 3; string uid = 5; string resourceVersion = 6;
  Time creationTimestamp = 8; Time deletionTimestamp = 9;
  int64 deletionGracePeriodSeconds = 10; map<string, string> labels = 11;
}
message OwnerReference {
  string kind = 1; string name = 3; string uid = 4; string apiVersion = 5; bool controller = 6;
}
message ObjectReference { string kind = 1; string namespace = 2; string name = 3; string uid = 4; }
message Condition { string type = 1; string status = 2; Time lastTransitionTime = 4; }
message Time { int64 seconds = 1; }
message IntOrString { int64 type = 1; int32 intVal = 2; string strVal = 3; }
message Quantity { string string = 1; }

message AnyObject { ObjectMeta metadata = 1; }
message ListMeta { string resourceVersion = 2; string continue = 3; }
message WatchEvent { string type = 1; RawExtension object = 2; }
message RawExtension { bytes raw = 1; }
message Unknown { TypeMeta typeMeta = 1; bytes raw = 2; }
message TypeMeta { string apiVersion = 1; string kind = 2; }
message Status { string message = 3; string reason = 4; StatusDetails details = 5; int32 code = 6; }
message StatusDetails { repeated StatusCause causes = 4; int32 retryAfterSeconds = 5; }
message StatusCause { string reason = 1; }
`;

export type Raw = Record<string, unknown>;

type Scalar = keyof typeof scalars;

interface Field {
  /** The field number and the wire type, as they precede the value. */
  readonly tag: number;
  readonly name: string;
  readonly label: 'optional' | 'repeated' | 'map';
  /** The type of the value, of each item, or of the values of a map, whose keys are strings. */
  readonly type: Scalar | Message;
}

interface Message {
  readonly fields: (Field | undefined)[];
  /** The value in JSON, of a message that is a scalar there. */
  readonly convert: ((raw: Raw) => unknown) | undefined;
  /** Only the condition Ready is read, and others are left out of their list. */
  readonly isCondition: boolean;
}

const scalars = {
  string: wire.readText,
  bytes: wire.readSpan,
  int32: wire.readInt32,
  int64: wire.readInt64,
  bool: wire.readBool,
};

/** Go's zero time, the first second of the year 1. */
const zeroTime = -62_135_596_800;
/** The first second of the year 10000, which RFC 3339 cannot express. */
const endOfTime = 253_402_300_800;

/** null for the zero time, as in JSON. */
function timeOf({ seconds = zeroTime }: Raw): Date | string | null {
  const value = seconds as number;
  if (value === zeroTime) return null;
  return value > zeroTime && value < endOfTime ? new Date(value * 1000) : 'out of range';
}

const conversions: Readonly<Record<string, Message['convert']>> = {
  Time: timeOf,
  Quantity: ({ string = '' }) => string,
  IntOrString: ({ type = 0, intVal = 0, strVal = '' }) => (type === 0 ? intVal : strVal),
};

const messages = new Map<string, Message>();

/** The message of this name; the schema may use it before its definition. */
function messageNamed(name: string): Message {
  let message = messages.get(name);
  if (message === undefined) {
    const isCondition = name === 'Condition';
    message = { fields: [], convert: conversions[name], isCondition };
    messages.set(name, message);
  }
  return message;
}

const fieldForm = /(repeated |map<string, )?(\w+)>? (\w+) = (\d+);/g;
for (const [, messageName = '', body = ''] of schema.matchAll(/message (\w+) \{([^}]*)\}/g)) {
  const { fields } = messageNamed(messageName);
  for (const [, prefix, type = '', name = '', digits] of body.matchAll(fieldForm)) {
    const isVarint = prefix === undefined && ['int32', 'int64', 'bool'].includes(type);
    const number = Number(digits);
    fields[number] = {
      tag: (number << 3) | (isVarint ? wire.varintType : wire.lengthType),
      name,
      label: prefix === undefined ? 'optional' : prefix === 'repeated ' ? 'repeated' : 'map',
      type: Object.hasOwn(scalars, type) ? (type as Scalar) : messageNamed(type),
    };
  }
}

/** `raw` keeps the fields before an error, a WrongType with the path of the field. */
export function readMessage(name: string, cursor: wire.Cursor, end: number, raw: Raw): void {
  readFields(messageNamed(name), cursor, end, raw);
}

function readFields({ fields }: Message, cursor: wire.Cursor, end: number, raw: Raw): void {
  let field: Field | undefined;
  try {
    while (cursor.at < end) {
      field = undefined;
      const tag = wire.readTag(cursor, end);
      field = fields[tag >>> 3];
      if (field === undefined && (tag & 7) === wire.lengthType)
        cursor.at = wire.readEnd(cursor, end);
      else if (field === undefined) wire.skip(cursor, tag, end);
      else if (tag === field.tag) readField(field, cursor, end, raw);
      else {
        const { name } = field;
        field = undefined;
        throw new WrongType(name, 'the wire type of the field', tag & 7);
      }
    }
  } catch (error) {
    if (!(error instanceof WrongType) || field === undefined) throw error;
    throw error.inside(field.name, failedIndex(field, raw[field.name]));
  }
}

/** The index of the item that could not be read: a message is in the list already. */
function failedIndex({ label, type }: Field, items: unknown): number | undefined {
  if (label !== 'repeated') return undefined;
  return Array.isArray(items) ? items.length - (typeof type === 'string' ? 0 : 1) : 0;
}

function readField({ name, label, type }: Field, cursor: wire.Cursor, end: number, raw: Raw): void {
  if (label === 'map') {
    readEntry(type, cursor, end, (raw[name] ??= {}) as Raw);
    return;
  }
  const isList = label === 'repeated';
  if (typeof type === 'string' || type.convert !== undefined) {
    const value = readValue(type, cursor, end);
    if (isList) addItem(raw, name, value);
    else raw[name] = value;
    return;
  }
  const to = wire.readEnd(cursor, end);
  if (type.isCondition && !isReady(cursor)) {
    cursor.at = to;
    return;
  }
  const part = isList ? {} : ((raw[name] ??= {}) as Raw);
  if (isList) addItem(raw, name, part);
  readFields(type, cursor, to, part);
}

/** Most lists have one item, and an empty list reserves room for 17 when one is added. */
function addItem(raw: Raw, name: string, item: unknown): void {
  const items = raw[name];
  if (Array.isArray(items)) items.push(item);
  else raw[name] = [item];
}

/** The type, the first field of a condition, begins with tag, length and R. */
const isReady = ({ bytes, at }: wire.Cursor): boolean =>
  bytes[at] !== 0x0a || (bytes[at + 1] === 5 && bytes[at + 2] === 0x52);

/** Reads a scalar, or a message whose JSON is a scalar. */
function readValue(type: Scalar | Message, cursor: wire.Cursor, end: number): unknown {
  if (type === 'string') return wire.readText(cursor, end); // most values, without the table
  if (typeof type === 'string') return scalars[type](cursor, end);
  const part: Raw = {};
  readFields(type, cursor, wire.readEnd(cursor, end), part);
  return type.convert?.(part);
}

function readEntry(type: Scalar | Message, cursor: wire.Cursor, end: number, map: Raw): void {
  const to = wire.readEnd(cursor, end);
  let key = '';
  let value: unknown = '';
  while (cursor.at < to) {
    const tag = wire.readTag(cursor, to);
    if (tag === wire.tagOf(1)) key = wire.readText(cursor, to);
    else if (tag === wire.tagOf(2)) value = readValue(type, cursor, to);
    else wire.skip(cursor, tag, to);
  }
  if (key !== '__proto__') map[key] = value;
  else Object.defineProperty(map, key, { value, enumerable: true, writable: true });
}
