// What is asked about, in words as kubectl has them: `pod/web-1`, `svc/shop/web`,
// `node/a service/web:http`. Names may lack their namespace; the snapshot tells which is meant, or
// that several may be.

import { parseIP } from '../../model/ip.ts';
import type { Key, Listers } from '../../model/objects.ts';
import type { ExplainTarget } from './explanation.ts';

/** Names as they were given: the namespace may be missing. */
interface Named {
  readonly namespace: string | null;
  readonly name: string;
}

/** What is asked about, before it is known in which namespace. */
export interface ParsedTarget {
  readonly pod: Named | null;
  readonly service: Named | null;
  readonly address: string | null;
  readonly node: string | null;
  /** The name of a port of the Service, where a node is asked about; null: all. */
  readonly port: string | null;
}

const usage =
  'Expected service/NAME, pod/NAME, pod/NAME service/NAME, ip/ADDRESS or ' +
  'node/NAME service/NAME:PORT';

const kinds: Readonly<Record<string, 'service' | 'pod' | 'address' | 'node'>> = {
  service: 'service',
  services: 'service',
  svc: 'service',
  pod: 'pod',
  pods: 'pod',
  po: 'pod',
  ip: 'address',
  node: 'node',
  nodes: 'node',
  no: 'node',
};

/**
 * What the words ask about, as kubectl writes names: `pod/web-1`, or `pod/shop/web-1` with the
 * namespace. Throws what is wrong with them.
 */
export function parseTarget(words: readonly string[], namespace: string | null): ParsedTarget {
  const asked: { -readonly [K in keyof ParsedTarget]: ParsedTarget[K] } = { ...nothing };
  for (const word of words) {
    const [kind = '', ...rest] = word.split('/');
    const field = Object.hasOwn(kinds, kind.toLowerCase()) ? kinds[kind.toLowerCase()] : undefined;
    if (field === undefined || rest.length === 0 || rest.some((part) => part === '')) {
      throw new Error(`${usage}: "${word}" is none of them`);
    }
    if (asked[field] !== null) throw new Error(`${usage}: more than one ${kind}`);
    const most = field === 'node' ? 1 : 2;
    if (field === 'address') asked.address = addressOf(rest.join('/'));
    else if (rest.length > most) throw new Error(`${usage}: "${word}" has too many parts`);
    else if (field === 'node') asked.node = rest[0] ?? '';
    else asked[field] = namedBy(rest, namespace);
  }
  const { pod, service, address, node } = asked;
  const alone = address !== null && (pod !== null || service !== null || node !== null);
  const lost = node !== null && (service === null || pod !== null);
  if (words.length === 0 || alone || lost) throw new Error(usage);
  return node === null || service === null ? asked : { ...asked, ...portOf(service) };
}

function addressOf(text: string): string {
  if (parseIP(text) === null) throw new Error(`${usage}: "${text}" is no IP address`);
  return text;
}

const nothing: ParsedTarget = { pod: null, service: null, address: null, node: null, port: null };

function namedBy([first = '', name]: readonly string[], namespace: string | null): Named {
  return name === undefined ? { namespace, name: first } : { namespace: first, name };
}

/** `web:http` is port http of web. */
function portOf({ namespace, name }: Named): Pick<ParsedTarget, 'service' | 'port'> {
  const [service = '', port] = name.split(':');
  return { service: { namespace, name: service }, port: port ?? null };
}

/** The keys that a name may stand for; without a namespace, of all namespaces. */
function keysOf({ namespace, name }: Named, held: ReadonlyMap<Key, { name: string }>): Key[] {
  if (namespace !== null) return [`${namespace}/${name}`];
  const keys: Key[] = [];
  for (const [key, object] of held) if (object.name === name) keys.push(key);
  return keys;
}

/** The one key that is meant; the namespace of what is asked beside it comes first. */
function keyOf(
  named: Named,
  held: ReadonlyMap<Key, { name: string }>,
  beside: Named | null,
): Key | null {
  const keys = keysOf(named, held);
  const near = beside?.namespace ?? null;
  const preferred = keys.find((key) => near !== null && key.startsWith(`${near}/`));
  if (preferred !== undefined) return preferred;
  const [key, ...others] = keys;
  if (others.length === 0) return key ?? null;
  throw new Error(`${keys.join(', ')} have that name: say which with -n NAMESPACE`);
}

const named = (key: Key | null): Named | null => {
  const [namespace, name] = key?.split('/') ?? [];
  return namespace === undefined || name === undefined ? null : { namespace, name };
};

/** The subject, once it is known where its objects are; null before that. */
export function resolveTarget(asked: ParsedTarget, listers: Listers): ExplainTarget | null {
  const { pod, service, address, node, port } = asked;
  if (address !== null) return { kind: 'address', address };
  if (node !== null && service !== null) {
    const key = keyOf(service, listers.services, null);
    return key === null ? null : { kind: 'node', node, service: key, port };
  }
  const podKey = pod === null ? null : keyOf(pod, listers.pods, service);
  const beside = (service?.namespace ?? null) === null ? named(podKey) : null;
  const serviceKey = service === null ? null : keyOf(service, listers.services, beside);
  if (pod === null) return serviceKey === null ? null : { kind: 'service', service: serviceKey };
  if (podKey === null) return null;
  if (service === null) return { kind: 'pod', pod: podKey };
  return serviceKey === null ? null : { kind: 'pair', pod: podKey, service: serviceKey };
}

/**
 * What was never met, for the answer that says so: a name that no namespace has is of the namespace
 * `*`, which none can be called.
 */
export function unresolvedTarget(
  { pod, service, node, port }: ParsedTarget,
  { services, pods }: Listers,
): ExplainTarget {
  const keyIn = (held: ReadonlyMap<Key, { name: string }>, one: Named): Key =>
    keyOf(one, held, null) ?? `*/${one.name}`;
  const podKey = keyIn(pods, pod ?? { namespace: null, name: '' });
  if (service === null) return { kind: 'pod', pod: podKey };
  const serviceKey = keyIn(services, service);
  if (node !== null) return { kind: 'node', node, service: serviceKey, port };
  if (pod === null) return { kind: 'service', service: serviceKey };
  return { kind: 'pair', pod: podKey, service: serviceKey };
}
