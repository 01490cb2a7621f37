// The messages of Kubernetes' objects as tables: by these a message can be read as the JSON of the
// same object would be (message-fields.ts), and measured (message-length.ts).
//
// Field numbers are those of generated.proto in k8s.io/api@v0.36.3 core/v1 and discovery/v1 and
// k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1, names and what is omitted those of the json tags in
// types.go there. Endpoints and EndpointSlices are whole, since their length is measured; of the
// other kinds only what project.ts reads is here, and to read more is to add a line. What is in no
// table (managedFields above all) is skipped.
//
// Go writes every field that is no pointer, list or map, zero or not, and null for an absent list
// that has no omitempty. Protobuf does not tell an empty list from an absent one; an API server has
// read its objects from protobuf too, so its JSON does not either.

import { tagOf, varintTagOf } from './wire.ts';

export type Scalar = 'string' | 'int32' | 'int64' | 'bool' | 'time' | 'quantity' | 'intOrString';

/** Whether JSON has a field: not when zero, whenever it is there (a pointer), or always. */
type Presence = 'unlessZero' | 'pointer' | 'always';

export interface Field {
  readonly number: number;
  /** The tag under which it must stand. */
  readonly tag: number;
  readonly name: string;
  readonly type: Scalar | Message;
  readonly many: 'one' | 'list' | 'map';
  readonly presence: Presence;
}

/** Fields by number. */
export type Message = readonly (Field | undefined)[];

/** A field; one of `many` is absent in JSON if it has no items, unless it is there always. */
function field(
  number: number,
  name: string,
  type: Scalar | Message = 'string',
  presence: Presence = 'unlessZero',
  many: Field['many'] = 'one',
): Field {
  const isVarint = type === 'int32' || type === 'int64' || type === 'bool';
  const tag = isVarint && many === 'one' ? varintTagOf(number) : tagOf(number);
  return { number, tag, name, type, presence, many };
}

const list = (number: number, name: string, type: Scalar | Message = 'string'): Field =>
  field(number, name, type, 'unlessZero', 'list');

const nullableList = (number: number, name: string, type: Scalar | Message = 'string'): Field =>
  field(number, name, type, 'always', 'list');

const map = (number: number, name: string, type: Scalar = 'string'): Field =>
  field(number, name, type, 'unlessZero', 'map');

/** A message that is no pointer, so that JSON has it even when empty. */
const part = (number: number, name: string, type: Message): Field =>
  field(number, name, type, 'always');

function message(...fields: readonly Field[]): Message {
  const byNumber: (Field | undefined)[] = [];
  for (const one of fields) byNumber[one.number] = one;
  return Array.from(byNumber);
}

// --- metadata and references ---

const ownerReference = message(
  field(1, 'kind', 'string', 'always'),
  field(3, 'name', 'string', 'always'),
  field(4, 'uid', 'string', 'always'),
  field(5, 'apiVersion', 'string', 'always'),
  field(6, 'controller', 'bool', 'pointer'),
  field(7, 'blockOwnerDeletion', 'bool', 'pointer'),
);

const objectMeta = message(
  field(1, 'name'),
  field(2, 'generateName'),
  field(3, 'namespace'),
  field(4, 'selfLink'),
  field(5, 'uid'),
  field(6, 'resourceVersion'),
  field(7, 'generation', 'int64'),
  field(8, 'creationTimestamp', 'time'),
  field(9, 'deletionTimestamp', 'time', 'pointer'),
  field(10, 'deletionGracePeriodSeconds', 'int64', 'pointer'),
  map(11, 'labels'),
  map(12, 'annotations'),
  list(13, 'ownerReferences', ownerReference),
  list(14, 'finalizers'),
);

const metadata = part(1, 'metadata', objectMeta);

const objectReference = message(
  field(1, 'kind'),
  field(2, 'namespace'),
  field(3, 'name'),
  field(4, 'uid'),
  field(5, 'apiVersion'),
  field(6, 'resourceVersion'),
  field(7, 'fieldPath'),
);

// --- kinds ---

const servicePort = message(
  field(1, 'name'),
  field(2, 'protocol'),
  field(3, 'port', 'int32'),
  field(4, 'targetPort', 'intOrString'),
  field(5, 'nodePort', 'int32'),
  field(6, 'appProtocol', 'string', 'pointer'),
);

const clientIPConfig = message(field(1, 'timeoutSeconds', 'int32', 'pointer'));

const serviceSpec = message(
  list(1, 'ports', servicePort),
  map(2, 'selector'),
  field(3, 'clusterIP'),
  field(4, 'type'),
  list(5, 'externalIPs'),
  field(7, 'sessionAffinity'),
  list(9, 'loadBalancerSourceRanges'),
  field(11, 'externalTrafficPolicy'),
  field(12, 'healthCheckNodePort', 'int32'),
  field(13, 'publishNotReadyAddresses', 'bool'),
  field(
    14,
    'sessionAffinityConfig',
    message(field(1, 'clientIP', clientIPConfig, 'pointer')),
    'pointer',
  ),
  list(18, 'clusterIPs'),
  list(19, 'ipFamilies'),
  field(22, 'internalTrafficPolicy', 'string', 'pointer'),
  field(23, 'trafficDistribution', 'string', 'pointer'),
);

const ingress = message(
  field(1, 'ip'),
  field(2, 'hostname'),
  field(3, 'ipMode', 'string', 'pointer'),
);

const serviceStatus = message(part(1, 'loadBalancer', message(list(1, 'ingress', ingress))));

const nodeSpec = message(field(1, 'podCIDR'), list(7, 'podCIDRs'));

const condition = message(
  field(1, 'type'),
  field(2, 'status'),
  field(4, 'lastTransitionTime', 'time'),
);

const nodeAddress = message(
  field(1, 'type', 'string', 'always'),
  field(2, 'address', 'string', 'always'),
);

const nodeStatus = message(
  map(2, 'allocatable', 'quantity'),
  list(4, 'conditions', condition),
  list(5, 'addresses', nodeAddress),
  field(7, 'nodeInfo', message(field(7, 'kubeletVersion'))),
);

const containerPort = message(
  field(1, 'name'),
  field(3, 'containerPort', 'int32'),
  field(4, 'protocol'),
);

const container = message(list(6, 'ports', containerPort), field(24, 'restartPolicy'));

const podSpec = message(
  list(2, 'containers', container),
  field(10, 'nodeName'),
  field(11, 'hostNetwork', 'bool'),
  field(16, 'hostname'),
  field(17, 'subdomain'),
  list(20, 'initContainers', container),
);

const podStatus = message(
  field(1, 'phase'),
  list(2, 'conditions', condition),
  field(6, 'podIP'),
  list(12, 'podIPs', message(field(1, 'ip'))),
);

const endpointAddress = message(
  field(1, 'ip', 'string', 'always'),
  field(2, 'targetRef', objectReference, 'pointer'),
  field(3, 'hostname'),
  field(4, 'nodeName', 'string', 'pointer'),
);

const endpointSubset = message(
  list(1, 'addresses', endpointAddress),
  list(2, 'notReadyAddresses', endpointAddress),
  list(
    3,
    'ports',
    message(
      field(1, 'name'),
      field(2, 'port', 'int32', 'always'),
      field(3, 'protocol'),
      field(4, 'appProtocol', 'string', 'pointer'),
    ),
  ),
);

const named = message(field(1, 'name', 'string', 'always'));

const endpoint = message(
  nullableList(1, 'addresses'),
  part(
    2,
    'conditions',
    message(
      field(1, 'ready', 'bool', 'pointer'),
      field(2, 'serving', 'bool', 'pointer'),
      field(3, 'terminating', 'bool', 'pointer'),
    ),
  ),
  field(3, 'hostname', 'string', 'pointer'),
  field(4, 'targetRef', objectReference, 'pointer'),
  map(5, 'deprecatedTopology'),
  field(6, 'nodeName', 'string', 'pointer'),
  field(7, 'zone', 'string', 'pointer'),
  field(8, 'hints', message(list(1, 'forZones', named), list(2, 'forNodes', named)), 'pointer'),
);

const slicePort = message(
  field(1, 'name', 'string', 'pointer'),
  field(2, 'protocol', 'string', 'pointer'),
  field(3, 'port', 'int32', 'pointer'),
  field(4, 'appProtocol', 'string', 'pointer'),
);

/** The message of the objects of each resource. */
export const messages = {
  nodes: message(metadata, field(2, 'spec', nodeSpec), field(3, 'status', nodeStatus)),
  services: message(metadata, field(2, 'spec', serviceSpec), field(3, 'status', serviceStatus)),
  pods: message(metadata, field(2, 'spec', podSpec), field(3, 'status', podStatus)),
  endpoints: message(metadata, list(2, 'subsets', endpointSubset)),
  endpointslices: message(
    metadata,
    nullableList(2, 'endpoints', endpoint),
    nullableList(3, 'ports', slicePort),
    field(4, 'addressType', 'string', 'always'),
  ),
} as const satisfies Record<string, Message>;

/** An object of any kind, with nothing but its metadata. */
export const metadataMessage = message(metadata);

/** meta.v1.Status; of the causes, only the reasons are read. */
export const statusMessage = message(
  field(3, 'message'),
  field(4, 'reason'),
  field(
    5,
    'details',
    message(list(4, 'causes', message(field(1, 'reason'))), field(5, 'retryAfterSeconds', 'int32')),
  ),
  field(6, 'code', 'int32'),
);

/** util.intstr.IntOrString; type 0 is the number. */
export const intOrString = message(
  field(1, 'type', 'int64'),
  field(2, 'intVal', 'int32'),
  field(3, 'strVal'),
);
/** resource.Quantity */
export const quantity = message(field(1, 'string'));

/** The entries of a map, which are messages, by the type of its values. */
export const entries: Readonly<Record<Scalar, Message>> = Object.fromEntries(
  (['string', 'int32', 'int64', 'bool', 'time', 'quantity', 'intOrString'] as const).map((type) => [
    type,
    message(field(1, 'key'), field(2, 'value', type)),
  ]),
) as Record<Scalar, Message>;
