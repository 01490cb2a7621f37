// Entries about nodes, before and after the audit begins.

import { join } from 'node:path';

import { describe, expect, test, vi } from 'vitest';
import { parse } from 'yaml';

import type { NodeReportEntry } from '../../src/agent/client/scraper.ts';
import type { CollectedDump } from '../../src/agent/collect.ts';
import { programs } from '../../src/agent/collect.ts';
import type { NodeFacts } from '../../src/agent/node-facts.ts';
import { askingOf, contextOf, digestsOf, readDumps, walkerAt } from '../../src/agent/report.ts';
import { createPendingFindings } from '../../src/audit/pending/pending.ts';
import type { GivenRules, NodeEntry } from '../../src/auditor/node-rules.ts';
import { createNodeRules } from '../../src/auditor/node-rules.ts';
import type { Problem } from '../../src/cluster/decode/problem.ts';
import { parseIP } from '../../src/model/ip.ts';
import { defaultCiliumConfig } from '../../src/model/cilium-config.ts';
import type { Packet } from '../../src/model/proxy-config.ts';
import { packetText, readKey } from '../../src/rules/report/digest.ts';
import { decodeOutcomes, encodeOutcomes } from '../../src/rules/report/outcome-json.ts';
import { runToEnd } from '../../src/model/run-to-end.ts';
import { storeOf } from '../build.ts';
import { readBytes, readFolder } from '../nodes/folder.ts';
import { inputOf } from '../nodes/walk.ts';

const path = join(import.meta.dirname, '../nodes/recordings/main/iptables-nft/node-a');
const input = inputOf(readFolder(path));
if (input === null) throw new Error('No objects');
const { node, services, slices } = input;
const textOf = (name: string): string => readBytes(join(path, name))?.toString() ?? '';

const file = (name: string, more: Partial<GivenRules> = {}): GivenRules => ({
  kind: 'given-rules',
  node: 'node-a',
  source: name,
  text: textOf(name),
  unread: null,
  config: null,
  ...more,
});

function begun(own = node) {
  const problems: Problem[] = [];
  /** When the node was audited. */
  const readings: number[] = [];
  const { listers } = storeOf([own, ...services, ...slices]);
  const settle = createPendingFindings({ window: 0, keep: 10 });
  const rules = createNodeRules({
    listers,
    settle,
    window: 0,
    minor: () => 36,
    onProblem: (problem) => problems.push(problem),
    onReading: ({ at }) => readings.push(at),
  });
  const reasons = () => [
    ...new Set(
      rules
        .nodes()
        ?.summary(0)
        .verdicts.get('node-a')
        ?.map(({ reason }) => reason),
    ),
  ];
  return { rules, settle, problems, readings, reasons };
}

const both = [file('iptables-save.txt'), file('ip6tables-save.txt')];

test('dumps wait for the begin of the audit, and show how kube-proxy is configured', () => {
  const { rules, settle, problems, reasons } = begun();
  for (const entry of both) rules.take(entry, 0);
  expect(rules.nodes()).toBeNull();
  rules.begin(0);
  expect(problems).toEqual([]);
  expect(reasons()).toEqual([null]);
  expect(settle.open().filter(({ severity }) => severity !== 'info')).toEqual([]);
});

test.each<[string, readonly GivenRules[]]>([
  ['two dumps', both],
  [
    'an unreadable dump and another',
    [file('iptables-save.txt', { text: '*nat' }), ...both.slice(1)],
  ],
])('%s that wait are audited together', (_, entries) => {
  const { rules, readings } = begun();
  for (const entry of entries) rules.take(entry, 0);
  rules.begin(5);
  expect(readings).toEqual([5]);
  for (const entry of entries) rules.take(entry, 7);
  expect(readings).toEqual([5, 7]);
});

test('an unreadable dump makes the node unknown, and is reported and counted', () => {
  const { rules, problems, reasons } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { text: '*nat\n' }), 0);
  expect(problems).toMatchObject([{ source: 'iptables-save.txt', object: 'Node node-a' }]);
  expect(rules.unreadable()).toBe(1);
  expect(reasons()).toEqual(['rules-not-known']);
});

test('incomplete dumps make the node unknown, and the missing parts are reported once', () => {
  const { rules, settle, problems, reasons } = begun();
  rules.begin(0);
  const said = "# Table `nat' contains incompatible base-chains, use 'nft' tool to list them.\n";
  const partly = file('iptables-save.txt', { text: said + textOf('iptables-save.txt') });
  for (const at of [0, 1]) rules.take(partly, at);
  expect(reasons()).toEqual(['rules-not-whole']);
  expect(settle.open()).toEqual([]);
  expect(problems.map(({ message }) => message)).toEqual([
    'iptables-nft-save does not show all chains of table ip nat: nft -j list ruleset does',
  ]);
  const hook = { type: 'nat', hook: 'output', prio: -105 };
  const nftables = [
    { table: { family: 'ip', name: 'nat' } },
    { chain: { family: 'ip', table: 'nat', name: 'custom', ...hook } },
  ];
  rules.take(file('nft.json', { text: JSON.stringify({ nftables }) }), 2);
  expect(reasons()).toContain(null);
  expect(problems.length).toBe(1);
});

test('a listing of nft without iptables-save does not show the targets of kube-proxy', () => {
  const { rules, settle, problems, reasons } = begun();
  rules.begin(0);
  const target = { xt: { type: 'target', name: 'DNAT' } };
  const place = { family: 'ip', table: 'nat' };
  const nftables = [
    { table: { family: 'ip', name: 'nat' } },
    { chain: { ...place, name: 'OUTPUT', type: 'nat', hook: 'output', prio: -100 } },
    { chain: { ...place, name: 'KUBE-SEP-X' } },
    { rule: { ...place, chain: 'OUTPUT', handle: 1, expr: [{ jump: { target: 'KUBE-SEP-X' } }] } },
    { rule: { ...place, chain: 'KUBE-SEP-X', handle: 2, expr: [target] } },
  ];
  const text = JSON.stringify({ nftables });
  rules.take(file('nft.json', { text }), 0);
  expect(reasons()).toEqual(['rules-not-whole']);
  expect(settle.open()).toEqual([]);
  expect(problems.length).toBe(1);
  // Rules of another mode are left over, and there are none for the Services.
  rules.take(file('nft.json', { text, config: { mode: 'nftables' } }), 1);
  expect(reasons()).not.toContain('rules-not-whole');
  expect(settle.open().map(({ severity }) => severity)).toContain('critical');
  expect(problems.length).toBe(1);
});

test('an invalid configuration is reported with its field', () => {
  const { rules, problems } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { config: { mode: 'userspace' } }), 0);
  expect(problems).toMatchObject([{ field: 'mode', source: 'iptables-save.txt' }]);
});

test('a node in a mode without a model is unknown', () => {
  const { rules, reasons } = begun();
  rules.begin(0);
  rules.take(file('iptables-save.txt', { config: { mode: 'ipvs' } }), 0);
  expect(reasons()).toEqual(['proxy-mode-not-modelled']);
});

test('a node in IPVS mode is unknown without its configuration, too', () => {
  const { rules, settle, reasons } = begun();
  const chains = ['PREROUTING ACCEPT', 'KUBE-SERVICES -', 'KUBE-NODE-PORT -'];
  const text = [
    '*nat',
    ...chains.map((chain) => `:${chain} [0:0]`),
    '-A PREROUTING -j KUBE-SERVICES',
    '-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT',
    '-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT',
    'COMMIT\n',
  ].join('\n');
  rules.begin(0);
  rules.take(file('iptables-save.txt', { text }), 0);
  expect(reasons()).toEqual(['proxy-mode-not-modelled']);
  expect(settle.open()).toEqual([]);
});

test("maps of Cilium are audited as such beside a kube-proxy's configuration", () => {
  const { rules, settle, reasons, problems } = begun();
  const text = 'REV: ID=1 ADDR=10.96.0.1:80\n';
  rules.begin(0);
  rules.take(file('node-a.maps', { text, config: { mode: 'ipvs' } }), 0);
  expect(problems).toEqual([]);
  expect(reasons()).not.toContain('proxy-mode-not-modelled');
  // The maps have no frontend at all.
  expect(settle.open().map(({ severity }) => severity)).toContain('critical');
});

test('a node is unknown if its kube-proxy refuses a node port address', () => {
  const config = { nodePortAddresses: ['primary', 'localhost'] };
  const { rules, reasons, problems } = begun({ ...node, kubeletMinor: 36 });
  rules.begin(0);
  rules.take(file('iptables-save.txt', { config }), 0);
  rules.take(file('iptables-save.txt', { config }), 1);
  expect(reasons()).toEqual(['proxy-config-refused']);
  expect(problems).toMatchObject([
    {
      ...{ source: 'Node node-a', field: 'nodePortAddresses[0]', value: '"primary"' },
      message: 'kube-proxy of this release takes CIDRs, or primary alone',
    },
  ]);
  const later = begun({ ...node, kubeletMinor: 37 });
  later.rules.begin(0);
  later.rules.take(file('iptables-save.txt', { config }), 0);
  expect(later.reasons()).not.toContain('proxy-config-refused');
  expect(later.problems).toEqual([]);
});

describe.each(['iptables-nft', 'nftables'])(
  'a kube-proxy of 1.33 with %s under 1.36',
  (backend) => {
    const old = join(import.meta.dirname, '../nodes/recordings/v1.33', backend, 'node-a');
    const { config } = parse(readBytes(join(old, 'proxy-config.yaml'))?.toString() ?? '') as {
      config: unknown;
    };
    const names =
      backend === 'nftables' ? ['nft.json'] : ['iptables-save.txt', 'ip6tables-save.txt'];

    /** Findings above information where the Node says so of its kubelet. */
    const foundWith = (kubeletMinor: number | null, given: unknown): string[] => {
      const { rules, settle, problems } = begun({ ...node, kubeletMinor });
      rules.begin(0);
      for (const name of names) {
        const text = readBytes(join(old, name))?.toString() ?? '';
        rules.take(file(name, { text, config: given }), 0);
      }
      expect(problems).toEqual([]);
      const found = settle.open().filter(({ severity }) => severity !== 'info');
      return found.map(({ code, object }) => `${code} ${object}`).sort();
    };

    test.each([
      ['with its configuration', config],
      ['by its dumps alone', null],
    ])('is compared with its own release, %s', (_, given) => {
      expect(foundWith(33, given)).toEqual([]);
      expect(foundWith(null, given)).not.toEqual([]);
    });
  },
);

describe('masquerade-all is detected by the rules or by the configuration', () => {
  const folder = readFolder(path.replace(/node-a$/, 'node-c'));
  const own = inputOf(folder)?.node ?? node;
  const names = ['iptables-save.txt', 'ip6tables-save.txt'];
  const given = (config: unknown): NodeEntry[] =>
    names.map((name) => {
      const text = readBytes(join(folder.path, name))?.toString() ?? '';
      return { ...file(name, { text, config }), node: own.name };
    });
  const common = { kind: 'node-config', at: 0, node: own.name, clusterCIDRs: [] } as const;

  test.each<[string, readonly NodeEntry[], boolean]>([
    ['nothing', given(null), true],
    ['its mode, by a line', [{ ...common, mode: 'iptables' }, ...given(null)], true],
    ['its mode, by a later line', [...given(null), { ...common, mode: 'iptables' }], true],
    ['a file that has something else', given({ mode: 'iptables' }), false],
  ])('%s', (_, entries, isSound) => {
    const { rules, settle, problems } = begun(own);
    rules.begin(0);
    for (const entry of entries) rules.take(entry, 0);
    expect(problems).toEqual([]);
    const found = settle.open().filter(({ severity }) => severity !== 'info');
    expect(found.length === 0).toBe(isSound);
  });

  test('its agent reports the settings that the rules show', () => {
    const dumps = given(null).map((entry, at): CollectedDump => ({
      program: programs[at === 0 ? 0 : 1],
      bytes: Buffer.from('text' in entry ? (entry.text ?? '') : ''),
    }));
    expect(readDumps(dumps).settings).toEqual({
      ...{ masqueradeAll: true, localhostNodePorts: true },
      nodePortAddresses: ['172.18.0.4/32', 'fd00:18::4/128'],
    });
  });
});

const dumpOf = (program: CollectedDump['program'], file: string): CollectedDump => ({
  program,
  bytes: Buffer.from(textOf(file)),
});
const noRules = Buffer.from('*nat\nCOMMIT\n*filter\nCOMMIT\n');
const withRules = readDumps([
  dumpOf(programs[0], 'iptables-save.txt'),
  dumpOf(programs[1], 'ip6tables-save.txt'),
]);

/** Of a node on which kube-proxy has never run. */
const without = readDumps(programs.slice(0, 2).map((program) => ({ program, bytes: noRules })));

/** The reports and answers of an agent with these interfaces, and the number of requests. */
function takeReports(
  rules: ReturnType<typeof begun>['rules'],
  more: readonly string[],
  dumps = withRules,
  proxyConfig: string | null = null,
  mode: 'iptables' | 'cilium' | null = dumps === without ? null : 'iptables',
  at = 0,
): number {
  const { addresses: nodeIPs, podCIDRs } = node;
  const localAddresses = [...nodeIPs, ...more];
  const bare = { node: 'node-a', interfaces: null, routes: null };
  const place: NodeFacts = { ...bare, localAddresses, nodeIPs: [...nodeIPs], podCIDRs };
  const digests = new Map(digestsOf(dumps, place));
  const report: NodeReportEntry['report'] = {
    node: 'node-a',
    localAddresses: [...contextOf(place).localAddresses],
    mode,
    proxyConfig,
    settings: mode === 'cilium' ? { cilium: defaultCiliumConfig() } : dumps.settings,
    problems: [],
    asking: askingOf(place, dumps),
    frontends: [...digests.keys()].flatMap((key) => readKey(key) ?? []),
    digests,
  };
  const version = JSON.stringify([mode, proxyConfig, ...digests.values()]);
  let needed: readonly Packet[] = [];
  const visit = (outcomes: NodeReportEntry['outcomes']): void => {
    const onNeed = (packets: readonly Packet[]): void => void (needed = packets);
    const seen = { at, seenAt: at, etag: version, version, lasting: 30, outcomes, onNeed };
    const steps = rules.takeAgentEntry({ kind: 'node-report', node: 'node-a', report, ...seen });
    while (steps.next().done !== true);
  };
  visit(null);
  const asked = needed;
  const sent = JSON.stringify(encodeOutcomes(asked.map(walkerAt(dumps, place))));
  const answers = runToEnd(decodeOutcomes(JSON.parse(sent)));
  visit(
    new Map(
      asked.flatMap((packet, at) => {
        const outcome = answers[at];
        return outcome === undefined ? [] : [[packetText(packet), outcome] as const];
      }),
    ),
  );
  return asked.length;
}

test.each([
  ['too many aliases', `a: &a [${'x,'.repeat(400)}]\nb: [${'*a,'.repeat(400)}]`],
  ['an alias without an anchor', 'a: *b'],
  ['two keys', 'a: 1\na: 2'],
])('a configuration with %s is reported, and the rules are unknown', (_, config) => {
  const { rules, problems, reasons } = begun();
  rules.begin(0);
  takeReports(rules, [], withRules, config);
  expect(problems.length).toBeGreaterThan(0);
  expect(problems[0]).toMatchObject({ object: 'Node node-a' });
  expect(reasons()).toEqual(['rules-not-known']);
});

describe('a node on which an agent finds no rules of kube-proxy', () => {
  test('is unknown if it never had any: another program may forward there', () => {
    const { rules, settle, problems, reasons } = begun();
    rules.begin(0);
    takeReports(rules, [], without);
    takeReports(rules, [], without);
    expect(reasons()).toEqual(['rules-not-known']);
    expect(settle.open()).toEqual([]);
    expect(problems.map(({ message }) => message)).toEqual([
      'There are no rules of kube-proxy. With Cilium, set agent.dataplane=cilium ' +
        '(--dataplane cilium)',
    ]);
  });

  test('is unknown if it had maps of Cilium, whatever kube-proxy is configured to do', () => {
    const { rules, reasons } = begun();
    rules.begin(0);
    takeReports(rules, [], without, 'mode: iptables', 'cilium');
    expect(reasons()).toEqual([null]);
    for (let round = 0; round < 3; round++) takeReports(rules, [], without, 'mode: iptables');
    expect(reasons()).toEqual(['rules-not-known']);
  });

  test('has lost them if it had some', () => {
    const { rules, settle } = begun();
    rules.begin(0);
    takeReports(rules, []);
    takeReports(rules, [], without);
    expect(settle.open().map(({ code }) => code)).toContain('node-rules-flushed');
  });
});

test.each([
  ['an alias of nothing', 'mode: *other', /Unresolved alias/],
  ['many aliases', `a: &a [1]\nb: [${Array(400).fill('*a').join(',')}]`, /alias count/],
  ['no YAML', 'mode: [', /Flow sequence/],
  ['an odd tag', 'mode: !odd iptables', null],
])('an agent sends a configuration with %s', (_, text, message) => {
  // A warning would quote the text on stderr.
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  const { rules, problems, reasons } = begun();
  rules.begin(0);
  takeReports(rules, [], withRules, text);
  const warnings = warn.mock.calls.length;
  warn.mockRestore();
  expect(warnings).toBe(0);
  const messages = message === null ? [] : [expect.stringMatching(message)];
  expect(problems.map((it) => it.message)).toEqual(messages);
  if (message !== null) expect(reasons()).toEqual(['rules-not-known']);
});

test('a node whose configuration changes all the time is unknown until that has ended', () => {
  const { rules, problems, reasons } = begun();
  rules.begin(0);
  const report = (at: number, range: number) => {
    const config = `mode: iptables\nclusterCIDR: 10.${range}.0.0/16`;
    takeReports(rules, [], withRules, config, 'iptables', at);
    return reasons();
  };
  // A change every five minutes is usual enough.
  for (let change = 0; change < 7; change++) expect(report(change * 300, change)).toEqual([null]);
  const at = Array.from({ length: 10 }, (_, second) => report(10_000 + second, 20 + second));
  expect(at.slice(0, 4)).toEqual(Array(4).fill([null]));
  expect(at.slice(-4)).toEqual(Array(4).fill(['rules-not-known']));
  expect(problems.map(({ message }) => message)).toEqual([
    'Its configuration has changed more than 5 times in 600 s',
  ]);
  expect(report(10_100, 29)).toEqual(['rules-not-known']);
  expect(report(10_700, 29)).toEqual([null]);
});

describe('an agent that reports one new configuration after the other', () => {
  const changing = (dumps: typeof withRules) => {
    const begin = begun();
    begin.rules.begin(0);
    const report = (at: number, range: number, other = dumps) => {
      const config = `mode: iptables\nclusterCIDR: 10.${range}.0.0/16`;
      return takeReports(begin.rules, [], other, config, 'iptables', at);
    };
    return { ...begin, report };
  };

  test('is not one whose settings come and go with endpoints', () => {
    const { rules, reasons } = begun();
    rules.begin(0);
    const lines = textOf('ip6tables-save.txt').split('\n');
    const less = lines.filter((line) => !/^-A KUBE-(?:SVC|EXT|SEP|SVL)-/.test(line)).join('\n');
    const without6 = readDumps([
      dumpOf(programs[0], 'iptables-save.txt'),
      { program: programs[1], bytes: Buffer.from(less) },
    ]);
    for (let change = 0; change < 9; change++) {
      takeReports(
        rules,
        [],
        change % 2 === 0 ? withRules : without6,
        null,
        'iptables',
        change * 60,
      );
    }
    expect(reasons()).toEqual([null]);
  });

  test('resolves no finding', () => {
    const { settle, report } = changing(without);
    for (let second = 0; second < 10; second++) report(second, second);
    expect(settle.open().map(({ code }) => code)).toContain('node-rules-flushed');
    expect(settle.resolved()).toEqual([]);
  });

  test('is audited by its last report afterwards', () => {
    const { settle, report } = changing(withRules);
    for (let second = 0; second < 8; second++) report(second, second);
    report(8, 1, without);
    for (const at of [700, 730]) report(at, 1, without);
    expect(settle.open().map(({ code }) => code)).toContain('node-rules-flushed');
  });
});

test('problems are reported again for a new node with the name of a deleted one', () => {
  const { rules, problems } = begun();
  rules.begin(0);
  takeReports(rules, [], without);
  takeReports(rules, [], without);
  expect(problems.length).toBe(1);
  runToEnd(rules.takeAgentEntry({ kind: 'node-unseen', node: 'node-a', at: 10, state: null }));
  takeReports(rules, [], without);
  expect(problems.length).toBe(2);
});

test('an agent of an IPVS node that answers again is not missing', () => {
  const { rules, reasons } = begun();
  rules.begin(0);
  runToEnd(rules.takeAgentEntry({ kind: 'node-unseen', node: 'node-a', at: 10, state: 'stale' }));
  takeReports(rules, [], withRules, 'mode: ipvs', 'iptables', 20);
  expect(reasons()).toEqual(['proxy-mode-not-modelled']);
  expect(rules.nodes()?.withoutAgent()).toEqual([]);
});

describe('a programming error that a report shows', () => {
  const broken = new Error('a programming error');
  function failing(onReportError?: (node: string, error: unknown) => void) {
    let isBroken = false;
    const { listers } = storeOf([node, ...services, ...slices]);
    const rules = createNodeRules({
      listers,
      settle: createPendingFindings({ window: 0, keep: 10 }),
      window: 0,
      minor() {
        if (isBroken) throw broken;
        return 36;
      },
      onProblem: () => undefined,
      onReportError,
    });
    rules.begin(0);
    const reasons = () =>
      new Set(
        rules
          .nodes()
          ?.summary(0)
          .verdicts.get('node-a')
          ?.map(({ reason }) => reason),
      );
    return { rules, reasons, report: (bad: boolean) => ((isBroken = bad), takeReports(rules, [])) };
  }

  test('makes the node unknown until it can be audited again', () => {
    const errors: unknown[] = [];
    const { rules, reasons, report } = failing((...error) => errors.push(error));
    report(true);
    expect(reasons()).toEqual(new Set(['rules-not-known']));
    expect(errors[0]).toEqual(['node-a', broken]);
    expect(rules.unreadable()).toBeGreaterThan(0);
    report(false);
    expect(reasons()).toEqual(new Set([null]));
  });

  test('is reported once until a report can be audited again', () => {
    const errors: unknown[] = [];
    const { rules, report } = failing((...error) => errors.push(error));
    report(true);
    report(true);
    expect(rules.unreadable()).toBeGreaterThan(1);
    expect(errors).toEqual([['node-a', broken]]);
    report(false);
    report(true);
    expect(errors.length).toBe(2);
  });

  test('is thrown where nothing takes it', () => {
    expect(() => failing().report(true)).toThrow(broken);
  });
});

describe('a correct node with an agent', () => {
  const isOpen = ({ severity }: { readonly severity: string }): boolean => severity !== 'info';
  const clouds = { ...node, externalIPs: ['203.0.113.10'] };
  const remote = slices.flatMap(({ endpoints }) =>
    endpoints.flatMap((one) =>
      one.target !== null ? [] : one.addresses.filter((text) => parseIP(text) !== null),
    ),
  );
  const bound = services.flatMap((one) => [...one.externalIPs, ...one.loadBalancerIPs]);

  test.each<[string, typeof node, readonly string[]]>([
    ['that has what its Node says', node, []],
    ['with an ExternalIP that is on no interface', clouds, []],
    ['with an ExternalIP that is on an interface', clouds, ['203.0.113.10']],
    ['with endpoints at addresses that its Node does not list', node, [...new Set(remote)]],
    ['with virtual IPs of Services on its interfaces', node, [...new Set(bound)]],
  ])('%s', (_, own, more) => {
    const { rules, settle, reasons } = begun(own);
    rules.begin(0);
    takeReports(rules, more);
    expect(reasons()).toEqual([null]);
    expect(settle.open().filter(isOpen)).toEqual([]);
  });

  test('is not asked for more packets if it has more addresses', () => {
    const { rules } = begun();
    rules.begin(0);
    const few = takeReports(rules, []);
    const many = Array.from({ length: 60 }, (_, at) => `192.168.7.${String(at)}`);
    const again = begun().rules;
    again.begin(0);
    expect(takeReports(again, many)).toBe(few);
  });

  test('an ExternalIP is not local if only dumps exist', () => {
    const { rules, settle } = begun(clouds);
    rules.begin(0);
    for (const entry of both) rules.take(entry, 0);
    expect(settle.open().filter(isOpen)).toEqual([]);
  });
});
