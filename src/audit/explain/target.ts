// Parses the target of an explanation, as kubectl writes objects: `pod/web-1`, `svc/shop/web`,
// `node/a service/web:http`. Names may lack their namespace; the listers resolve it.

import { parseIP } from '../../model/ip.ts';
import type { Key, Listers } from '../../model/objects.ts';
import type { ExplainTarget } from './explanation.ts';

/** A target as the user wrote it; the namespace is '' if none was given. */
export interface ParsedTarget {
  pod: Key | null;
  service: Key | null;
  address: string | null;
  node: string | null;
  /** The name of a port of the Service, for a node; null for all ports. */
  port: string | null;
}

const usage =
  'Expected service/NAME, pod/NAME, pod/NAME service/NAME, ip/ADDRESS, node/NAME or ' +
  'node/NAME service/NAME:PORT';

const kinds = new Map<string, 'service' | 'pod' | 'address' | 'node'>([
  ...['service', 'services', 'svc'].map((kind) => [kind, 'service'] as const),
  ...['pod', 'pods', 'po'].map((kind) => [kind, 'pod'] as const),
  ...['node', 'nodes', 'no'].map((kind) => [kind, 'node'] as const),
  ['ip', 'address'],
]);

function guessMeant(word: string): string {
  if (parseIP(word) !== null) return `; did you mean ip/${word}?`;
  if (/^[./~]|\.(json|ya?ml|ndjson|gz|tgz)$/.test(word)) return '; name a file with --input FILE';
  return word.includes('/') ? '' : `; did you mean service/${word} or pod/${word}?`;
}

/** Throws an Error with the usage if the words name no target. */
export function parseTarget(words: readonly string[], namespace: string | null): ParsedTarget {
  const target: ParsedTarget = { pod: null, service: null, address: null, node: null, port: null };
  for (const word of words) {
    const [kind = '', ...rest] = word.split('/');
    const [first = '', second] = rest;
    const field = kinds.get(kind.toLowerCase());
    if (field === undefined || rest.length === 0 || rest.includes('')) {
      throw new Error(`${usage}: found "${word}"${guessMeant(word)}`);
    }
    if (target[field] !== null) throw new Error(`${usage}: more than one ${kind}`);
    if (field === 'address') {
      const address = rest.join('/');
      if (parseIP(address) === null) throw new Error(`${usage}: "${address}" is not an IP address`);
      target.address = address;
    } else if (rest.length > (field === 'node' ? 1 : 2)) {
      throw new Error(`${usage}: "${word}" has too many parts`);
    } else if (field === 'node') target.node = first;
    else target[field] = second === undefined ? `${namespace ?? ''}/${first}` : rest.join('/');
  }
  const { pod, service, address, node } = target;
  const isNotAlone = address !== null && (pod !== null || service !== null || node !== null);
  const isIncomplete = node !== null && pod !== null;
  if (words.length === 0) {
    throw new Error(`${usage}; for a whole namespace, use audit -n ${namespace ?? 'NAME'}`);
  }
  if (isNotAlone || isIncomplete) throw new Error(usage);
  if (node === null || service === null) return target;
  const [key = '', port = null] = service.split(':');
  return { ...target, service: key, port };
}

/** `*` becomes the namespace if no object has the name. Throws an Error if several have it. */
function resolveKey(key: Key, objects: ReadonlyMap<Key, unknown>, other: Key | null): Key {
  if (!key.startsWith('/')) return key;
  const keys = [...objects.keys()].filter((known) => known.endsWith(key));
  const near = keys.find((known) => known.split('/')[0] === other?.split('/')[0]);
  if (near !== undefined || keys.length < 2) return near ?? keys[0] ?? `*${key}`;
  throw new Error(`${keys.join(', ')} have that name: choose one with -n NAMESPACE`);
}

/** The target with its namespaces, which are `*` for objects that exist in none. */
export function resolveTarget(target: ParsedTarget, { pods, services }: Listers): ExplainTarget {
  const { address, node, port } = target;
  if (address !== null) return { kind: 'address', address };
  const pod = target.pod && resolveKey(target.pod, pods, target.service);
  const service = target.service && resolveKey(target.service, services, pod);
  if (node !== null) return { kind: 'node', node, service, port };
  if (service === null) return { kind: 'pod', pod: pod ?? '*/' };
  return pod === null ? { kind: 'service', service } : { kind: 'pair', pod, service };
}

/** Whether all objects of a target have a namespace. */
export const isResolved = (target: ExplainTarget): boolean =>
  !Object.values(target).some((value: string | null) => value?.startsWith('*/'));
