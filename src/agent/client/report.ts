// Decodes the report of an agent (docs/decisions/0016): facts about its node, and a digest for each
// frontend. It is untrusted, so every field is checked. Texts that nodes share are stored once.

import { recordOf } from '../../model/collections.ts';
import { canonicalIP } from '../../model/ip.ts';
import { type NodeSenders, readKey, type Senders } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { InferredSettings } from '../../rules/report/infer-proxy-config.ts';
import { check, fieldsOf, listOf } from '../../rules/report/outcome-json.ts';

export type AgentReport = ReturnType<typeof readReport>;

const known = new Map<string, RuleFrontend>();
const mostKnown = 100_000;

function frontendOf(key: string): RuleFrontend {
  const before = known.get(key);
  if (before !== undefined) return before;
  const frontend = readKey(key);
  check(frontend !== null, `a frontend, not ${key.slice(0, 100)}`);
  if (known.size < mostKnown) known.set(key, frontend);
  return frontend;
}

/** Decodes a report. Throws InvalidReport if it has another form. */
export function readReport(raw: unknown) {
  const fields = fieldsOf(raw, 'a report');
  check(fields.version === 1, 'a report of version 1');
  const { node, proxyConfig } = fields;
  const mode = ([null, 'iptables', 'nftables'] as const).find((known) => known === fields.mode);
  const nodeIPs = texts(fields.nodeIPs, 'nodeIPs');
  check(typeof node === 'string' && node !== '', 'node: a name');
  check(mode !== undefined, 'mode: iptables or nftables');
  const doubled = new Set(texts(fields.doubled, 'doubled'));
  const digests = new Map<string, string>();
  for (const [key, digest] of Object.entries(fieldsOf(fields.frontends, 'frontends'))) {
    check(typeof digest === 'string', `a digest of ${key.slice(0, 100)}`);
    digests.set(key, digest);
  }
  return {
    node,
    /** The addresses of its interfaces, in canonical form. Earlier agents sent only node IPs. */
    localAddresses: texts(fields.localAddresses ?? nodeIPs, 'localAddresses').map(canonicalIP),
    /** `null` if kube-proxy left no rules. */
    mode,
    /** The text of kube-proxy's configuration; `null` if the agent has none. */
    proxyConfig:
      proxyConfig === null
        ? null
        : text(fieldsOf(proxyConfig, 'proxyConfig: an object').text, 'text of proxyConfig'),
    settings: settingsOf(fields.settings),
    /** Why the rules of the node are unknown; empty if they are known. */
    problems: texts(fields.problems, 'problems'),
    asking: askingOf(fields.asking),
    frontends: [...digests.keys()].map((key) =>
      doubled.has(key) ? { ...frontendOf(key), translators: 2 } : frontendOf(key),
    ),
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

const settings = {
  detectLocalMode: text,
  bridgeInterface: text,
  interfaceNamePrefix: text,
  clusterCIDRs: texts,
  masqueradeAll: flag,
  nodePortAddresses: texts,
  localhostNodePorts: flag,
} satisfies Record<keyof InferredSettings, (value: unknown, what: string) => unknown>;

function settingsOf(raw: unknown): InferredSettings {
  const fields = fieldsOf(raw, 'settings: an object');
  const found = Object.entries(settings).filter(([name]) => fields[name] !== undefined);
  return Object.fromEntries(found.map(([name, read]) => [name, read(fields[name], name)]));
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
  const senders = fieldsOf(raw, 'senders: an object');
  return recordOf(['node', 'pod', 'outside'], (name) =>
    senders[name] === null ? null : text(senders[name], name),
  );
}
