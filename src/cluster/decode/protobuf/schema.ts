// The protobuf messages of Kubernetes that the auditor reads, with only the fields that it reads.
//
// The text is an excerpt of generated.proto in k8s.io/api@v0.36.3 core/v1 and discovery/v1 and
// k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1, pkg/runtime, pkg/util/intstr and pkg/api/resource,
// without `optional`. To read another field, add its line. Field names are those in JSON.

import { lengthType, varintType } from './wire.ts';

const text = `
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

export type Scalar = 'string' | 'bytes' | 'int32' | 'int64' | 'bool';

/** The fields of a message by name, as those of the JSON of the same object. */
export type Raw = Record<string, unknown>;

export interface Field {
  /** The field number and the wire type, as they precede the value. */
  readonly tag: number;
  readonly name: string;
  readonly label: 'optional' | 'repeated' | 'map';
  /** The type of the value, of each item, or of the values of a map, whose keys are strings. */
  readonly type: Scalar | Message;
}

export interface Message {
  /** The fields by their numbers. */
  readonly fields: (Field | undefined)[];
  /** The value in JSON, of a message that is a scalar there. */
  readonly convert: ((raw: Raw) => unknown) | undefined;
  /** Whether an item of this type that begins here is left out of its list. */
  readonly isLeftOut: ((bytes: Buffer, at: number) => boolean) | undefined;
}

const scalars: readonly string[] = ['string', 'bytes', 'int32', 'int64', 'bool'] satisfies Scalar[];
const varints: readonly string[] = ['int32', 'int64', 'bool'] satisfies Scalar[];
const fieldForm = /(repeated |map<string, )?(\w+)>? (\w+) = (\d+);/g;

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

/** Only the condition Ready is read; the type, its first field, begins with tag, length and R. */
const isOtherCondition = (bytes: Buffer, at: number): boolean =>
  bytes[at] === 0x0a && (bytes[at + 1] !== 5 || bytes[at + 2] !== 0x52);

const messages = new Map<string, Message>();

/** The message of this name; the text may use it before its definition. */
export function messageNamed(name: string): Message {
  const isLeftOut = name === 'Condition' ? isOtherCondition : undefined;
  const message = messages.get(name) ?? { fields: [], convert: conversions[name], isLeftOut };
  messages.set(name, message);
  return message;
}

for (const [, messageName = '', body = ''] of text.matchAll(/message (\w+) \{([^}]*)\}/g)) {
  const { fields } = messageNamed(messageName);
  for (const [, prefix, type = '', name = '', digits] of body.matchAll(fieldForm)) {
    const isVarint = prefix === undefined && varints.includes(type);
    const number = Number(digits);
    fields[number] = {
      tag: (number << 3) | (isVarint ? varintType : lengthType),
      name,
      label: prefix === undefined ? 'optional' : prefix === 'repeated ' ? 'repeated' : 'map',
      type: scalars.includes(type) ? (type as Scalar) : messageNamed(type),
    };
  }
}
