// Labelled faults of the rules on a node: each changes what a real kube-proxy wrote, in a way that
// does not depend on its release. Violations name the Service port that they are about, or none if
// the whole node is.

export interface RuleFault {
  /** `namespace/name:port`; '': the node as a whole. */
  readonly about: string;
  readonly violation: boolean;
  readonly note: string;
}

/** Changes the dump of one table family; null: it has nothing that the fault could be about. */
export interface IptablesFault extends RuleFault {
  readonly edit: (dump: readonly string[]) => readonly string[] | null;
}

export interface NftablesFault extends RuleFault {
  /** Input of `nft -f`, for a listing of the rules and the cluster IPs of Services. */
  readonly script: (listing: string, ips: ReadonlyMap<string, string>) => string | null;
}

const chainOf = (line: string | undefined): string => /-[jg] (\S+)/.exec(line ?? '')?.[1] ?? '';

/** Edits the lines in which every text occurs. */
const lines =
  (texts: readonly string[], change: (line: string) => readonly string[]) =>
  (dump: readonly string[]): readonly string[] | null => {
    const fits = (line: string): boolean => texts.every((text) => line.includes(text));
    return dump.some(fits) ? dump.flatMap((line) => (fits(line) ? change(line) : [line])) : null;
  };

const without = (...texts: readonly string[]) => lines(texts, () => []);

/** The chain behind the rule of KUBE-SERVICES for the cluster IP of a Service port. */
const serviceChain = (dump: readonly string[], port: string): string =>
  chainOf(
    dump.find(
      (line) =>
        line.includes(`-A KUBE-SERVICES`) &&
        line.includes(`"${port} cluster IP"`) &&
        line.includes(' -j KUBE-SVC'),
    ),
  );

/** Edits the rules of the chain of a Service port. */
const inChain =
  (port: string, change: (rules: readonly string[]) => readonly string[]) =>
  (dump: readonly string[]): readonly string[] | null => {
    const start = `-A ${serviceChain(dump, port)} `;
    const at = dump.findIndex((line) => line.startsWith(start));
    if (at < 0) return null;
    const count = dump.filter((line) => line.startsWith(start)).length;
    const rules = change(dump.slice(at, at + count));
    return [...dump.slice(0, at), ...rules, ...dump.slice(at + count)];
  };

const isJump = (rule: string): boolean => rule.includes('-j KUBE-SEP');

/** Adds rules before the first rule of a table. */
const before =
  (table: string, ...rules: readonly string[]) =>
  (dump: readonly string[]): readonly string[] => {
    const begin = dump.indexOf(`*${table}`);
    if (begin < 0) return [...dump, `*${table}`, ...rules, 'COMMIT'];
    const at = dump.findIndex((line, index) => index > begin && /^-A|^COMMIT/.test(line));
    return [...dump.slice(0, at), ...rules, ...dump.slice(at)];
  };

/** Empties a table: its own chains go, the others accept. */
const flushed =
  (table: string) =>
  (dump: readonly string[]): readonly string[] => {
    const begin = dump.indexOf(`*${table}`);
    const end = dump.indexOf('COMMIT', begin);
    const policies = dump
      .slice(begin, end)
      .filter((line) => /^[*:]/.test(line) && !line.includes('KUBE-'));
    return [...dump.slice(0, begin), ...policies, ...dump.slice(end)];
  };

/** The address of a cluster IP rule. */
const addressAt = (dump: readonly string[], port: string): string => {
  const rule = dump.find(
    (line) => line.includes(`"${port} cluster IP"`) && line.includes('-j KUBE-SVC'),
  );
  return /-d (\S+?)\/32/.exec(rule ?? '')?.[1] ?? '192.0.2.1';
};

const web = 'shop/web:http';

const violation = (about: string, note: string, edit: IptablesFault['edit']): IptablesFault => ({
  ...{ about, note, edit },
  violation: true,
});

const harmless = (note: string, edit: IptablesFault['edit'], about = ''): IptablesFault => ({
  ...{ about, note, edit },
  violation: false,
});

/** Replaces the destination of the first endpoint of a Service port. */
const redirected = (to: (destination: string) => string) => (dump: readonly string[]) => {
  const start = `-A ${serviceChain(dump, web)} `;
  const jump = dump.find((line) => line.startsWith(start) && isJump(line));
  const endpoint = `-A ${chainOf(jump)} `;
  return lines([endpoint, '--to-destination'], (line) => [
    line.replace(/--to-destination (?<old>\S+)/, (_, old: string) => `--to-destination ${to(old)}`),
  ])(dump);
};

export const iptablesFaults: Readonly<Record<string, IptablesFault>> = {
  'service-missing': violation(
    web,
    'no rule for the cluster IP',
    without('-A KUBE-SERVICES', `"${web} cluster IP"`),
  ),
  'service-chain-empty': violation(
    web,
    'the chain of the Service port has no rules',
    inChain(web, () => []),
  ),
  'service-crossed': violation(web, 'the cluster IP leads to another Service', (dump) => {
    const other = serviceChain(dump, 'shop/two:http');
    return lines(['-A KUBE-SERVICES', `"${web} cluster IP"`], (line) => [
      line.replace(/-j \S+/, `-j ${other}`),
    ])(dump);
  }),
  'endpoint-jump-missing': violation(
    web,
    'the first of several endpoints gets nothing',
    inChain(web, (rules) => rules.filter((rule) => rule !== rules.find(isJump))),
  ),
  'endpoint-last-jump-missing': violation(
    web,
    'the last of several endpoints gets nothing',
    inChain(web, (rules) => rules.filter((rule) => rule !== rules.findLast(isJump))),
  ),
  'probability-missing': violation(
    web,
    'the first endpoint gets everything',
    inChain(web, (rules) =>
      rules.map((rule) => rule.replace(/-m statistic --mode random --probability \S+ /, '')),
    ),
  ),
  'probability-skewed': violation(
    web,
    'the first endpoint gets one packet in twenty (the possible destinations are the same)',
    inChain(web, (rules) =>
      rules.map((rule) =>
        rule === rules.find(isJump)
          ? rule.replace(/--probability \S+/, '--probability 0.05000000000')
          : rule,
      ),
    ),
  ),
  'dnat-port-wrong': violation(
    web,
    'another port of the first endpoint',
    redirected((old) => `${old}1`.replace(/:\d+$/, ':9999')),
  ),
  'dnat-address-wrong': violation(
    web,
    'the address of no endpoint',
    redirected(() => '10.9.9.9:8080'),
  ),
  'mark-masq-missing': violation(
    web,
    'packets from outside the pod range are not marked',
    inChain(web, (rules) => rules.filter((rule) => !rule.includes('KUBE-MARK-MASQ'))),
  ),
  'node-port-missing': violation(
    'shop/node-port:http',
    'no rule for the node port',
    without('-A KUBE-NODEPORTS', '"shop/node-port:http"'),
  ),
  'load-balancer-ip-missing': violation(
    'shop/balanced:http',
    'no rule for the address of the load balancer',
    without('-A KUBE-SERVICES', '"shop/balanced:http loadbalancer IP"'),
  ),
  'external-ip-missing': violation(
    'shop/external:http',
    'no rule for the external IP',
    without('-A KUBE-SERVICES', '"shop/external:http external IP"'),
  ),
  'source-range-open': violation(
    'shop/ranges:http',
    'sources outside the ranges are not dropped',
    without('-A KUBE-PROXY-FIREWALL', '"shop/ranges:http'),
  ),
  'reject-missing': violation(
    'shop/nobody:http',
    'the cluster IP of a Service without endpoints is not refused',
    without('-A KUBE-SERVICES', '"shop/nobody:http has no endpoints"'),
  ),
  'local-drop-missing': violation(
    'shop/local-elsewhere:http',
    'packets to a node without local endpoints are not dropped',
    without('-A KUBE-EXTERNAL-SERVICES', '"shop/local-elsewhere:http has no local endpoints"'),
  ),
  'affinity-missing': violation(
    'shop/sticky:http',
    'no rule looks at the recent list',
    without('--rcheck'),
  ),
  'foreign-dnat-shadow': violation(
    web,
    'a rule before those of kube-proxy translates to another address',
    (dump) =>
      before(
        'nat',
        `-A PREROUTING -d ${addressAt(dump, web)}/32 -p tcp -m tcp --dport 80 ` +
          '-j DNAT --to-destination 10.9.9.9:80',
      )(dump),
  ),
  'foreign-drop-raw': violation(web, 'a rule drops what comes from pods and from outside', (dump) =>
    before('raw', `-A PREROUTING -d ${addressAt(dump, web)}/32 -j DROP`)(dump),
  ),
  'mark-masq-empty': violation(
    '',
    'marks for masquerading are not set',
    without('-A KUBE-MARK-MASQ'),
  ),
  'postrouting-missing': violation('', 'nothing is masqueraded', without('-A KUBE-POSTROUTING')),
  'postrouting-jump-missing': violation(
    '',
    'nothing is masqueraded',
    without('-A POSTROUTING', '-j KUBE-POSTROUTING'),
  ),
  'prerouting-jump-missing': violation(
    '',
    'packets of pods and from outside are not translated',
    without('-A PREROUTING', '-j KUBE-SERVICES'),
  ),
  'nodeports-jump-missing': violation(
    '',
    'no node port is served',
    without('-A KUBE-SERVICES', '-j KUBE-NODEPORTS'),
  ),
  'nat-table-flushed': violation('', 'table nat flushed', flushed('nat')),
  'filter-table-flushed': violation('', 'table filter flushed', flushed('filter')),
  'jump-twice': harmless(
    'the jump is there twice',
    lines(['-A PREROUTING', '-j KUBE-SERVICES'], (line) => [line, line]),
  ),
  'order-changed': harmless(
    'the rules of KUBE-SERVICES for cluster IPs are in another order',
    (dump) => {
      const isMoved = (line: string): boolean =>
        line.startsWith('-A KUBE-SERVICES') && line.includes('cluster IP"');
      const moved = dump.filter(isMoved).reverse();
      return dump.map((line) => (isMoved(line) ? (moved.shift() ?? line) : line));
    },
  ),
  'comments-gone': harmless(
    'the rules of one Service have no comments',
    inChain(web, (rules) =>
      rules.map((rule) => rule.replace(/-m comment --comment ("[^"]*"|\S+) /, '')),
    ),
    web,
  ),
  'foreign-harmless': harmless(
    'a rule for packets that belong to no Service',
    before('nat', '-A PREROUTING -d 192.0.2.250/32 -p tcp -m tcp --dport 7 -j ACCEPT'),
  ),
};

const table = 'ip kube-proxy';

/** The chain that a map of a listing leads to from a key. */
function verdictOf(listing: string, key: string): string | null {
  const at = listing.indexOf(`${key} `);
  return at < 0 ? null : (/goto (?<chain>\S+?),?\s/.exec(listing.slice(at))?.groups?.chain ?? null);
}

const keyOf = (ips: ReadonlyMap<string, string>, service: string): string =>
  `${ips.get(service) ?? '192.0.2.1'} . tcp . 80`;

/** Flushes the chain of a Service port and adds rules to it. */
const refilled =
  (...rules: readonly string[]): NftablesFault['script'] =>
  (listing, ips) => {
    const chain = verdictOf(listing, keyOf(ips, 'web'));
    if (chain === null) return null;
    const added = rules.map((rule) => `add rule ${table} ${chain} ${rule}\n`);
    return `flush chain ${table} ${chain}\n${added.join('')}`;
  };

const emptied = (chain: string) => (): string => `flush chain ${table} ${chain}\n`;

const deleted =
  (map: string, key: (ips: ReadonlyMap<string, string>) => string): NftablesFault['script'] =>
  (_, ips) =>
    `delete element ${table} ${map} { ${key(ips)} }\n`;

const breaks = (about: string, note: string, script: NftablesFault['script']): NftablesFault => ({
  ...{ about, note, script },
  violation: true,
});

/** A table of another program with one chain at a hook. */
const foreign = (hook: string, rule: (ips: ReadonlyMap<string, string>) => string) =>
  ((_, ips) =>
    `table ip other { chain early {\ntype ${hook}; policy accept;\n` +
    `${rule(ips)}\n}\n}\n`) satisfies NftablesFault['script'];

export const nftablesFaults: Readonly<Record<string, NftablesFault>> = {
  'map-element-missing': breaks(
    web,
    'no verdict for the cluster IP',
    deleted('service-ips', (ips) => keyOf(ips, 'web')),
  ),
  'map-element-crossed': breaks(web, 'the cluster IP leads to another Service', (listing, ips) => {
    const chain = verdictOf(listing, keyOf(ips, 'two'));
    const [key, map] = [keyOf(ips, 'web'), `${table} service-ips`];
    return chain === null
      ? null
      : `delete element ${map} { ${key} }\nadd element ${map} { ${key} : goto ${chain} }\n`;
  }),
  'map-verdict-drop': breaks(web, 'the cluster IP is dropped', (_, ips) => {
    const [key, map] = [keyOf(ips, 'web'), `${table} service-ips`];
    return `delete element ${map} { ${key} }\nadd element ${map} { ${key} : drop }\n`;
  }),
  'chain-emptied': breaks(web, 'the chain of the Service port has no rules', refilled()),
  'endpoint-address-wrong': breaks(
    web,
    'the address of no endpoint',
    refilled('meta l4proto tcp dnat to 10.9.9.9:8080'),
  ),
  'endpoint-missing': breaks(
    web,
    'one endpoint gets everything',
    refilled('meta l4proto tcp dnat to 10.244.1.40:8080'),
  ),
  'node-port-missing': breaks(
    'shop/node-port:http',
    'no verdict for the node port',
    deleted('service-nodeports', () => 'tcp . 30080'),
  ),
  'load-balancer-ip-missing': breaks(
    'shop/balanced:http',
    'no verdict for the address of the load balancer',
    deleted('service-ips', () => '198.18.0.1 . tcp . 80'),
  ),
  'external-ip-missing': breaks(
    'shop/external:http',
    'no verdict for the external IP',
    deleted('service-ips', () => '198.18.1.1 . tcp . 80'),
  ),
  'services-emptied': breaks('', 'no Service is served', emptied('services')),
  'prerouting-emptied': breaks(
    '',
    'packets of pods and from outside are not translated',
    emptied('nat-prerouting'),
  ),
  'output-emptied': breaks('', 'packets of the node are not translated', emptied('nat-output')),
  'masquerading-emptied': breaks('', 'nothing is masqueraded', emptied('masquerading')),
  'map-flushed': breaks('', 'no address has a verdict', () => `flush map ${table} service-ips\n`),
  'table-missing': breaks('', 'the table of IPv4 is gone', () => `delete table ${table}\n`),
  'ruleset-flushed': breaks('', 'no rule is left', () => 'flush ruleset\n'),
  'foreign-drop': breaks(
    web,
    'a table of others drops what comes from pods and from outside',
    foreign(
      'filter hook prerouting priority -300',
      (ips) => `ip daddr ${ips.get('web') ?? ''} drop`,
    ),
  ),
  'foreign-dnat-earlier': breaks(
    web,
    'a table of others translates to another address',
    foreign(
      'nat hook prerouting priority -150',
      (ips) => `ip daddr ${ips.get('web') ?? ''} tcp dport 80 dnat to 10.9.9.9:80`,
    ),
  ),
  'chain-stale-unreferenced': {
    about: '',
    violation: false,
    note: 'a chain of a Service that is gone, which nothing leads to',
    script: () => `add chain ${table} service-ABCDEFGH-shop/gone/tcp/http\n`,
  },
  'foreign-harmless': {
    about: '',
    violation: false,
    note: 'a table of others for packets that belong to no Service',
    script: foreign(
      'filter hook prerouting priority -300',
      () => 'ip daddr 192.0.2.250 tcp dport 7 drop',
    ),
  },
};
