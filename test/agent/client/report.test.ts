// Reports of agents as they come over the wire.

import { fc, test as property } from '@fast-check/vitest';
import { describe, expect, test } from 'vitest';

import { readReport as readInSteps } from '../../../src/agent/client/report.ts';
import { createReport as makeReport, parseRules } from '../../../src/agent/report.ts';
import { createAgent } from '../../../src/agent/schedule.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { InvalidReport } from '../../../src/rules/report/outcome-json.ts';
import { withPrograms } from '../../processes.ts';

const readReport = (raw: unknown) => runToEnd(readInSteps(raw));

const dump = ['*nat', ':PREROUTING ACCEPT [0:0]', '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp'];
const rule = `${dump.join('\n')} --dport 443 -j DNAT --to-destination 10.0.0.1:6443\nCOMMIT`;

async function createReport(): Promise<Record<string, unknown>> {
  const agent = createAgent({
    node: 'node-a',
    nodeIPs: ['172.18.0.2'],
    podCIDRs: ['10.244.1.0/24'],
    proxyConfig: { source: 'config', text: 'mode: iptables' },
    onProblem: () => undefined,
    interval: 60,
    limits: withPrograms({ 'iptables-nft-save': `echo '${rule}'` }),
  });
  await agent.round();
  return JSON.parse(agent.report()?.text.toString() ?? '') as Record<string, unknown>;
}

let report: ReturnType<typeof createReport> | null = null;
const sent = async (): ReturnType<typeof createReport> =>
  structuredClone(await (report ??= createReport()));

test('what an agent reports is read', async () => {
  const raw = await sent();
  const report = readReport(raw);
  expect(report).toMatchObject({
    node: 'node-a',
    localAddresses: raw.localAddresses,
    mode: null,
    proxyConfig: 'mode: iptables',
    problems: [],
    asking: raw.asking,
    frontends: [{ family: 'ip', address: '10.96.0.1', protocol: 'tcp', port: 443, translators: 1 }],
  });
  expect([...report.digests]).toEqual(Object.entries(raw.frontends as object));
});

test('nodes share their frontends, which are kept no longer than the report', async () => {
  const raw = await sent();
  const [first] = readReport(raw).frontends;
  expect(readReport({ ...raw, node: 'node-b' }).frontends[0]).toBe(first);
  readReport({ ...raw, frontends: {} });
  const [later] = readReport(raw).frontends;
  expect(later).toEqual(first);
  expect(later).not.toBe(first);
});

test('addresses of interfaces are read in canonical form', async () => {
  const raw = { ...(await sent()), localAddresses: ['FD00:0::9', '10.0.0.9'] };
  expect(readReport(raw).localAddresses).toEqual(['fd00::9', '10.0.0.9']);
});

test('rules are unknown if an agent of 0.1.0 may have left out addresses', async () => {
  const problemsWith = async (count: number, addressCount?: number) => {
    const localAddresses = Array.from({ length: count }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
    return readReport({ ...(await sent()), localAddresses, addressCount }).problems;
  };
  expect(await problemsWith(255)).toEqual([]);
  for (const count of [256, 258]) {
    const older = 'The agent is older than 0.2.0: it reports only 256 addresses of its node';
    expect(await problemsWith(count)).toEqual([expect.stringContaining(older)]);
    expect(await problemsWith(count, count)).toEqual([]);
  }
});

test('rules are unknown if the agent counts more addresses than it reports', async () => {
  const counted = { localAddresses: ['10.0.0.1', '10.0.0.2'], addressCount: 3 };
  const reason = 'The agent reports only 2 of the 3 addresses of its node';
  expect(readReport({ ...(await sent()), ...counted }).problems).toEqual([reason]);
});

test('the rules of a node with too many addresses are unknown for one reason', () => {
  const localAddresses = Array.from({ length: 1025 }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
  const place = { node: 'node-a', nodeIPs: [], podCIDRs: [] };
  const facts = { ...place, localAddresses, interfaces: null, routes: null };
  const { rules, problems } = parseRules([], facts);
  const raw = makeReport(null, facts, { states: {}, problems }, rules);
  const reason = expect.stringContaining('The node has 1025 addresses') as string;
  expect(readReport(JSON.parse(JSON.stringify(raw))).problems).toEqual([reason]);
});

test('other work has its turn between two source ranges', async () => {
  const ranges = Array.from({ length: 100 }, (_, at) => `10.0.${String(at)}.0/24`);
  const more = { sourceRanges: { 'tcp 10.96.0.1:443': ranges } };
  expect([...readInSteps({ ...(await sent()), ...more })].length).toBeGreaterThan(100);
});

test('other work has its turn between two addresses or frontends', async () => {
  const localAddresses = ['fd00::1', 'fd00::2', 'fd00::3'];
  const steps = [...readInSteps({ ...(await sent()), localAddresses })];
  expect(steps.length).toBeGreaterThanOrEqual(3 + 1);
});

test('settings of kube-proxy are read as far as there are any', async () => {
  const settings = {
    ...{ detectLocalMode: 'BridgeInterface', bridgeInterface: 'cbr0', clusterCIDRs: ['fd00::/48'] },
    ...{ masqueradeAll: true, nodePortAddresses: ['10.0.0.1/32'], localhostNodePorts: false },
  };
  expect(readReport({ ...(await sent()), settings }).settings).toEqual(settings);
  expect(readReport({ ...(await sent()), settings: {} }).settings).toEqual({});
});

test('a report about Cilium has its flags and source ranges', async () => {
  const cilium = { ...defaultCiliumConfig(), nodePortAddresses: ['172.18.0.2'] };
  const more = { mode: 'cilium', settings: { cilium } };
  const ranges = { 'tcp 10.96.0.1:443': ['198.51.100.0/24'] };
  const read = readReport({ ...(await sent()), ...more, sourceRanges: ranges });
  expect(read).toMatchObject(more);
  const range = { family: 'IPv4', low: 0xc6336400, high: 0xc63364ff };
  expect(read.sourceRanges).toEqual(new Map([['tcp 10.96.0.1:443', [range]]]));
});

test('the mode may be one that is not modelled', async () => {
  expect(readReport({ ...(await sent()), mode: 'ipvs' }).mode).toBe('ipvs');
});

test('frontends of several tables are distinct', async () => {
  const raw = { ...(await sent()), doubled: ['tcp 10.96.0.1:443'] };
  expect(readReport(raw).frontends).toMatchObject([{ translators: 2 }]);
});

/** More source ranges than all frontends of a node may have. */
const manyRanges = Object.fromEntries(
  Array.from({ length: 17 }, (_, at) => [
    `tcp 10.96.0.1:${at + 1}`,
    Array(1000).fill('10.0.0.0/8'),
  ]),
);

describe('what is none', () => {
  test.each<[Record<string, unknown> | null, RegExp]>([
    [null, /a report/],
    [{ version: 2 }, /version: 1/],
    [{ node: '' }, /node/],
    [{ node: 'x'.repeat(254) }, /node: a name/],
    [{ mode: 'userspace' }, /mode/],
    [{ nodeIPs: [7] }, /nodeIPs/],
    [{ localAddresses: {} }, /localAddresses/],
    [{ localAddresses: undefined }, /localAddresses/],
    [{ addressCount: 'x' }, /addressCount/],
    [{ localAddresses: ['10.0.0.1', '10.0.0.2'], addressCount: 1 }, /addressCount/],
    [{ localAddresses: [], addressCount: -1 }, /addressCount/],
    [{ proxyConfig: {} }, /proxyConfig/],
    [{ settings: { clusterCIDRs: 'x' } }, /clusterCIDRs/],
    [{ settings: { nodePortAddresses: [7] } }, /nodePortAddresses/],
    // It is in each packet that the auditor asks for.
    [{ settings: { interfaceNamePrefix: 'x'.repeat(16) } }, /interfaceNamePrefix/],
    [{ settings: { bridgeInterface: '\ud800' } }, /the name of an interface/],
    [{ settings: { masqueradeAll: 'yes' } }, /masqueradeAll/],
    [{ settings: { localhostNodePorts: 1 } }, /localhostNodePorts/],
    [{ asking: { ip: null } }, /asking\.ip: an object/],
    [{ asking: { ip: { node: 7, pod: null, outside: null } } }, /asking\.ip\.node: a text/],
    [{ frontends: [] }, /frontends: an object/],
    [{ frontends: { 'tcp 10.96.0.1:443': 7 } }, /digest/],
    [{ frontends: { 'tcp 10.96.0.1': 'x' } }, /a frontend/],
    [{ frontends: { 'tcp 10.96.0.1:70000': 'x' } }, /a frontend/],
    [{ frontends: { 'tcp [10.96.0.1]:443': 'x' } }, /a frontend/],
    [{ doubled: {} }, /doubled/],
    [{ problems: 'x' }, /problems/],
    [{ problems: Array(1025).fill('') }, /problems: a list of at most 1024/],
    [{ localAddresses: Array(16_385).fill('') }, /at most 16384/],
    [{ sourceRanges: { 'tcp 10.96.0.1:443': Array(1025).fill('10.0.0.0/8') } }, /source ranges/],
    [{ sourceRanges: manyRanges }, /source ranges/],
    [{ sourceRanges: { 'tcp 10.96.0.1:443': 7 } }, /source ranges of tcp 10.96.0.1:443/],
    [{ sourceRanges: { 'tcp 10.96.0.1:443': ['1'.repeat(65)] } }, /source ranges/],
    // An address of a megabyte would be split at each colon.
    [{ localAddresses: [':'.repeat(65)] }, /of at most 64 characters/],
    [{ nodeIPs: ['1'.repeat(65)] }, /nodeIPs: .* of at most 64 characters/],
    [{ settings: { clusterCIDRs: ['1'.repeat(65)] } }, /clusterCIDRs: .* 64 characters/],
    // One message, not a million.
    [{ nodeIPs: Array(500_000).fill(7) }, /nodeIPs: a list of at most 1024 texts/],
    [{ frontends: { 'tcp 10.96.0.1:443': 'x'.repeat(65) } }, /digest/],
    // What a parser of YAML needs seconds and gigabytes for.
    [{ proxyConfig: { text: `a: ${'x'.repeat(65_536)}` } }, /64 KiB/],
    [{ proxyConfig: { text: `a: ${'['.repeat(1000)}` } }, /few levels/],
    [{ proxyConfig: { text: `a: ${'{a: '.repeat(1000)}` } }, /few levels/],
    [{ proxyConfig: { text: '- '.repeat(1000) } }, /few levels/],
    [{ proxyConfig: { text: '? '.repeat(1000) } }, /few levels/],
    [{ proxyConfig: { text: 'a: 1\n'.repeat(1001) } }, /1,000 lines/],
    [{ proxyConfig: { text: `a: [${'1,'.repeat(1001)}]` } }, /items/],
    [{ proxyConfig: { text: 'a: b\r'.repeat(1001) } }, /1,000 lines/],
    [{ proxyConfig: { text: `a: ${'&a '.repeat(2001)}` } }, /2,000 marks/],
    [{ proxyConfig: { text: '"\' '.repeat(1001) } }, /2,000 marks/],
    [{ proxyConfig: { text: 'a: '.repeat(2001) } }, /marks/],
  ])('%j', async (more, message) => {
    const raw = more === null ? null : { ...(await sent()), ...more };
    expect(() => readReport(raw)).toThrow(InvalidReport);
    expect(() => readReport(raw)).toThrow(message);
  });

  property.prop([fc.jsonValue()])('is refused, or read, and nothing else', (raw) => {
    try {
      readReport(raw);
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidReport);
    }
  });
});
