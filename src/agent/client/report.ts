// Decodes the report of an agent (docs/decisions/0016): facts about its node, and a digest for each
// frontend. It is untrusted, so every field is checked. Texts that nodes share are stored once.

import * as z from 'zod/mini';

import { isFields } from '../../model/collections.ts';
import { canonicalIP, type CIDR, parseCIDR } from '../../model/ip.ts';
import { isInterfaceName, proxyModes } from '../../model/proxy-config.ts';
import type { Steps } from '../../model/run-to-end.ts';
import { type NodeSenders, readKey } from '../../rules/report/digest.ts';
import type { RuleFrontend } from '../../rules/report/frontends.ts';
import type { InferredSettings } from '../../rules/report/infer-proxy-config.ts';
import { check, InvalidReport, listOf } from '../../rules/report/outcome-json.ts';

export type AgentReport = ReturnType<typeof readReport> extends Steps<infer T> ? T : never;

/** The most items of a list, of addresses, and of frontends. */
const most = { items: 1024, addresses: 16_384, ranges: 16_384, frontends: 65_536 };

/** The frontends of the latest report of any node: most nodes have the same ones. */
let latest: ReadonlyMap<string, RuleFrontend> = new Map();

function frontendOf(key: string): RuleFrontend {
  const frontend = latest.get(key) ?? readKey(key);
  check(frontend !== null, `a frontend, not ${key.slice(0, 100)}`);
  return frontend;
}

const text = z.string({ error: 'a text' });
const flag = z.boolean({ error: 'true or false' });
/** One check, since zod would make an issue for each item, and a list may have a million. */
const textsUpTo = (count: number, length = Infinity) =>
  z.custom<readonly string[]>(
    (value) =>
      Array.isArray(value) &&
      value.length <= count &&
      value.every((item) => typeof item === 'string' && item.length <= length),
    {
      error:
        `a list of at most ${String(count)} texts` +
        (length === Infinity ? '' : ` of at most ${String(length)} characters`),
    },
  );
const texts = textsUpTo(most.items);
/** An address, a range or a keyword of kube-proxy. */
const addressesUpTo = (count: number) => textsUpTo(count, 64);
const addresses = addressesUpTo(most.items);

/**
 * Whether a configuration has few levels, items, lines and marks, as those of kube-proxy have. For
 * others, the parser of YAML needs seconds.
 */
function isSimple(config: string): boolean {
  const count = (mark: RegExp): number => config.match(mark)?.length ?? 0;
  const isDeep = /(?:[-?:][\t ]+){9}/.test(config) || count(/[[{]/g) > 100;
  const isLong = count(/[\n\r]/g) > 1000 || count(/,/g) > 1000;
  // Quotes, anchors, aliases, tags, keys and values: each is a token of YAML.
  const marks = count(/["'&*!%\]}]|[-?:]\s/g);
  return !isDeep && !isLong && marks <= 2000;
}

const configText = text.check(
  z.maxLength(64 * 1024, { error: 'at most 64 KiB' }),
  z.refine(isSimple, { error: 'at most 1,000 lines and items, 2,000 marks, and few levels' }),
);

const interfaceName = text.check(z.refine(isInterfaceName, { error: 'the name of an interface' }));

const objectOf = <T extends z.core.$ZodShape>(shape: T) => z.object(shape, { error: 'an object' });

/** A node has thousands of frontends, so zod makes no copy of these. */
const byFrontend = z.custom<Readonly<Record<string, unknown>>>(isFields, { error: 'an object' });

const sender = z.nullable(text);
const senders = objectOf({ node: sender, pod: sender, outside: sender });

const port = z.int({ error: 'a port' }).check(z.minimum(0), z.maximum(65_535));

const ciliumConfig = objectOf({
  algorithm: z.enum(['random', 'maglev'], { error: 'random or maglev' }),
  mode: z.enum(['snat', 'dsr', 'hybrid'], { error: 'snat, dsr or hybrid' }),
  serviceTopology: z.nullable(flag),
  sourceRangeAllTypes: flag,
  externalClusterIP: flag,
  algorithmAnnotation: flag,
  modeAnnotation: flag,
  nodePortRange: z.tuple([port, port], { error: 'two ports' }),
  serviceProxyName: text,
  nodePortAddresses: texts,
});

const form = objectOf({
  version: z.literal(1, { error: '1' }),
  node: text.check(z.minLength(1, { error: 'a name' }), z.maxLength(253, { error: 'a name' })),
  /** `null` if kube-proxy left no rules, and no maps of Cilium were read. */
  mode: z.nullable(
    z.enum([...proxyModes, 'cilium'], { error: 'iptables, nftables, ipvs or cilium' }),
  ),
  nodeIPs: addresses,
  localAddresses: addressesUpTo(most.addresses),
  addressCount: z.optional(z.int({ error: 'a count' })),
  proxyConfig: z.nullable(objectOf({ text: configText })),
  settings: objectOf({
    detectLocalMode: z.optional(text),
    bridgeInterface: z.optional(interfaceName),
    interfaceNamePrefix: z.optional(interfaceName),
    clusterCIDRs: z.optional(addresses),
    masqueradeAll: z.optional(flag),
    nodePortAddresses: z.optional(addresses),
    localhostNodePorts: z.optional(flag),
    cilium: z.optional(ciliumConfig),
  }),
  problems: texts,
  doubled: textsUpTo(most.frontends),
  asking: objectOf({
    ip: senders,
    ip6: senders,
    addresses,
    pods: addresses,
    strays: z.optional(z.unknown()),
  }),
  /** Of Cilium: ranges by the keys of frontends. */
  sourceRanges: z.optional(byFrontend),
  /** Digests by the keys of frontends. */
  frontends: byFrontend,
});

/** Agents before 0.2.0 send this many of the addresses on interfaces, and all node IPs. */
const oldMost = 256;

const mayBeCut =
  `The agent is older than 0.2.0: it reports only ${oldMost} addresses of its node, ` +
  'which may have more. Update the agent';

/** The agent's reasons; else that it leaves out addresses, since without them nothing is known. */
function reasons(given: readonly string[], length: number, count: number | undefined) {
  if (count === undefined) return length < oldMost ? given : [...given, mayBeCut];
  check(count >= length, 'addressCount: the number of all addresses');
  // An agent that counts says itself that the node has too many.
  if (count === length || given.length > 0) return given;
  return [`The agent reports only ${length} of the ${count} addresses of its node`];
}

/** Decodes a report. Throws InvalidReport, which names the field, if it has another form. */
export function* readReport(raw: unknown) {
  const read = form.safeParse(raw);
  if (!read.success) {
    const [issue] = read.error.issues;
    const field = issue?.path.length === 0 ? 'a report' : issue?.path.join('.');
    throw new InvalidReport(`Expected ${String(field)}: ${String(issue?.message)}`);
  }
  const { node, mode, localAddresses, addressCount, proxyConfig, asking } = read.data;
  const { sourceRanges } = read.data;
  const doubled = new Set(read.data.doubled);
  const digests = new Map<string, string>();
  const known = new Map<string, RuleFrontend>();
  const frontends: RuleFrontend[] = [];
  const { frontends: given } = read.data;
  const keys = Object.keys(given);
  check(keys.length <= most.frontends, `at most ${String(most.frontends)} frontends`);
  yield;
  for (const key of keys) {
    const digest = given[key];
    check(typeof digest === 'string' && digest.length <= 64, `a digest of ${key.slice(0, 100)}`);
    digests.set(key, digest);
    const frontend = frontendOf(key);
    known.set(key, frontend);
    frontends.push(doubled.has(key) ? { ...frontend, translators: 2 } : frontend);
    yield;
  }
  latest = known;
  const local: string[] = [];
  for (const address of localAddresses) {
    local.push(canonicalIP(address));
    yield;
  }
  return {
    node,
    mode,
    /** The addresses of its interfaces, in canonical form. */
    localAddresses: local,
    /** The text of kube-proxy's configuration; `null` if the agent has none. */
    proxyConfig: proxyConfig?.text ?? null,
    settings: read.data.settings as InferredSettings,
    /** Why the rules of the node are unknown; empty if they are known. */
    problems: reasons(read.data.problems, local.length, addressCount),
    asking: { ...asking, strays: asking.strays === true } satisfies NodeSenders,
    ...(sourceRanges === undefined ? {} : { sourceRanges: yield* rangesIn(sourceRanges) }),
    frontends,
    digests,
  };
}

function* rangesIn(
  byKey: Readonly<Record<string, unknown>>,
): Steps<ReadonlyMap<string, readonly CIDR[]>> {
  const found = new Map<string, readonly CIDR[]>();
  let left = most.ranges;
  const keys = Object.keys(byKey);
  yield;
  for (const key of keys) {
    const what = `source ranges of ${key.slice(0, 100)}`;
    const ranges: CIDR[] = [];
    const items = listOf(byKey[key], what);
    left -= items.length;
    check(items.length <= most.items && left >= 0, what);
    for (const item of items) {
      const range = typeof item === 'string' && item.length <= 64 ? parseCIDR(item) : null;
      check(range !== null, what);
      ranges.push(range);
      yield;
    }
    found.set(key, ranges);
    yield;
  }
  return found;
}
