// What a change of an object changed, field by field, as far as a controller reads the object. The
// change that made a difference is kept with it (reconcile.ts).

import { type Change, kinds, label, type Labels } from '../../model/objects.ts';
import { differingKeys } from './compare.ts';

/** One field of an object that changed; a value is `null` if the field was or is absent. */
export interface ObjectChange {
  /** When the change arrived, Unix seconds on the clock of the input. */
  readonly at: number;
  readonly kind: string;
  /** '' for a Node. */
  readonly namespace: string;
  readonly name: string;
  readonly field: string;
  readonly from: string | null;
  readonly to: string | null;
}

/** `Node a`, `Pod shop/web-1`. */
export const objectName = ({
  kind,
  namespace,
  name,
}: Pick<ObjectChange, 'kind' | 'namespace' | 'name'>): string =>
  `${kind} ${namespace === '' ? name : `${namespace}/${name}`}`;

/** Two changes with equal keys are one, also if one of them was read from a file. */
export const changeKey = ({ at, kind, namespace, name, field, from, to }: ObjectChange): string =>
  JSON.stringify([at, kind, namespace, name, field, from, to]);

/** The fields that a controller reads of Services, Pods and Nodes, by their names in the model. */
const fields: Readonly<Record<string, string>> = {
  selector: 'spec.selector',
  ports: 'ports',
  type: 'spec.type',
  clusterIP: 'spec.clusterIP',
  ipFamilies: 'spec.ipFamilies',
  publishNotReadyAddresses: 'spec.publishNotReadyAddresses',
  trafficDistribution: 'spec.trafficDistribution',
  topologyAuto: 'metadata.annotations topology-mode Auto',
  terminal: 'status.phase Failed or Succeeded',
  ready: 'status.conditions Ready',
  ips: 'status.podIPs',
  node: 'spec.nodeName',
  hostname: 'spec.hostname',
  subdomain: 'spec.subdomain',
  zone: `metadata.labels ${label.zone}`,
  deleting: 'metadata.deletionTimestamp',
};

const names = Object.keys(fields);

/** The most characters of a value. */
const mostText = 200;

/** `null` for what is absent: no value, an empty text, no items. */
function textOf(value: unknown): string | null {
  if (Array.isArray(value)) return value.map(textOf).join(', ') || null;
  if (typeof value === 'object' && value !== null) {
    const shown = Object.entries(value).filter(([, it]) => ![null, 0, false].includes(it as null));
    return shown.map(([key, it]) => `${key}=${String(it)}`).join(',') || null;
  }
  return String((value as string | number | boolean | null | undefined) ?? '') || null;
}

/** What a change changed; of the labels of a pod, only those that the selector has count. */
export function changedFields(change: Change, selector: Labels | null): readonly ObjectChange[] {
  const { resource, before, after, at } = change;
  const { namespace = '', name = '' } = after ?? before ?? {};
  const diff = (field: string, was: unknown, is: unknown): ObjectChange[] => {
    const [from = null, to = null] = [was, is].map((it) => textOf(it)?.slice(0, mostText));
    return from === to ? [] : [{ at, kind: kinds[resource], namespace, name, field, from, to }];
  };
  if (before?.uid !== after?.uid) return diff('metadata.uid', before?.uid, after?.uid);
  if (before === null || after === null) return [];
  if (resource === 'endpoints' || resource === 'endpointslices') {
    return diff('metadata.resourceVersion', before.resourceVersion, after.resourceVersion);
  }
  const isUnlabelled = resource === 'nodes' || before.labels === after.labels;
  const keys = isUnlabelled ? [] : differingKeys(before.labels, after.labels);
  const [old, now] = [before, after] as unknown as Record<string, unknown>[];
  return [
    ...keys
      .filter((key) => resource === 'services' || Object.hasOwn(selector ?? {}, key))
      .flatMap((key) => diff(`metadata.labels ${key}`, before.labels[key], after.labels[key])),
    ...names
      .filter((key) => old?.[key] !== now?.[key])
      .flatMap((key) => diff(fields[key] ?? '', old?.[key], now?.[key])),
  ];
}
