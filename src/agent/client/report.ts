// Decodes the report of an agent (docs/decisions/0016): facts about its node, and a digest for each
// frontend that its rules serve. Texts that nodes share are stored once.
//
// A report is untrusted input, so every field is checked.

import { canonicalIP } from '../../model/ip.ts';
import type { NodeSenders, Senders } from '../../rules/report/digest.ts';
import { readKey } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { InferredSettings } from '../../rules/report/infer-proxy-config.ts';
import { check, fieldsOf, listOf } from '../../rules/report/outcome-json.ts';

export interface AgentReport {
  readonly node: string;
  /** The addresses of its interfaces, in canonical form. */
  readonly localAddresses: readonly string[];
  /** null: kube-proxy left nothing there. */
  readonly mode: 'iptables' | 'nftables' | null;
  /** The text of kube-proxy's configuration; null: it was not given. */
  readonly proxyConfig: string | null;
  readonly settings: InferredSettings;
  /** Reasons why the rules of the node are unknown; empty if they are known. */
  readonly problems: readonly string[];
  readonly asking: NodeSenders;
  readonly claims: readonly RuleFrontend[];
  readonly digests: ReadonlyMap<string, string>;
}

/** Claims by their keys: those of all nodes are the same. */
const known = new Map<string, RuleFrontend>();
const mostKnown = 100_000;

function claimOf(key: string): RuleFrontend {
  const before = known.get(key);
  if (before !== undefined) return before;
  const claim = readKey(key);
  check(claim !== null, `a frontend, not ${key.slice(0, 100)}`);
  if (known.size < mostKnown) known.set(key, claim);
  return claim;
}

/**
 * Reads a report.
 *
 * @throws NotTold where it is none.
 */
export function readReport(raw: unknown): AgentReport {
  const fields = fieldsOf(raw, 'a report');
  check(fields.version === 1, 'a report of version 1');
  const { node, mode, proxyConfig, frontends } = fields;
  const nodeIPs = texts(fields.nodeIPs, 'nodeIPs');
  check(typeof node === 'string' && node !== '', 'node: a name');
  check(mode === null || mode === 'iptables' || mode === 'nftables', 'mode: iptables or nftables');
  const doubled = new Set(texts(fields.doubled, 'doubled'));
  const digests = new Map<string, string>();
  const claims: RuleFrontend[] = [];
  for (const [key, digest] of Object.entries(fieldsOf(frontends, 'frontends'))) {
    check(typeof digest === 'string', `a digest of ${key.slice(0, 100)}`);
    const claim = claimOf(key);
    claims.push(doubled.has(key) ? { ...claim, translators: 2 } : claim);
    digests.set(key, digest);
  }
  return {
    node,
    // Earlier agents reported only the node IPs.
    localAddresses: texts(fields.localAddresses ?? nodeIPs, 'localAddresses').map(canonicalIP),
    mode,
    proxyConfig: proxyConfig === null ? null : configText(proxyConfig),
    settings: settingsOf(fields.settings),
    problems: texts(fields.problems, 'problems'),
    asking: askingOf(fields.asking),
    claims,
    digests,
  };
}

function text(value: unknown, what: string): string {
  check(typeof value === 'string', `${what}: a text`);
  return value;
}

function flag(value: unknown, what: string): boolean {
  check(typeof value === 'boolean', `${what}: true or false`);
  return value;
}

const texts = (value: unknown, what: string): readonly string[] =>
  listOf(value, `${what}: a list`).map((item) => text(item, what));

const configText = (raw: unknown): string =>
  text(fieldsOf(raw, 'proxyConfig: an object').text, 'text of proxyConfig');

function settingsOf(raw: unknown): InferredSettings {
  const fields = fieldsOf(raw, 'settings: an object');
  const of = <T>(name: keyof InferredSettings, read: (value: unknown, what: string) => T) =>
    fields[name] === undefined ? {} : { [name]: read(fields[name], name) };
  return {
    ...of('detectLocalMode', text),
    ...of('bridgeInterface', text),
    ...of('interfaceNamePrefix', text),
    ...of('clusterCIDRs', texts),
    ...of('masqueradeAll', flag),
    ...of('nodePortAddresses', texts),
    ...of('localhostNodePorts', flag),
  };
}

function askingOf(raw: unknown): NodeSenders {
  const { ip, ip6, addresses, pods, strays } = fieldsOf(raw, 'asking: an object');
  return {
    ip: sendersOf(ip),
    ip6: sendersOf(ip6),
    addresses: texts(addresses, 'addresses'),
    pods: texts(pods, 'pods'),
    strays: strays === true,
  };
}

function sendersOf(raw: unknown): Senders {
  const fields = fieldsOf(raw, 'senders: an object');
  const of = (name: keyof Senders): string | null =>
    fields[name] === null ? null : text(fields[name], name);
  return { node: of('node'), pod: of('pod'), outside: of('outside') };
}
