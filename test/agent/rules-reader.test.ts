// The process that reads for an agent, by what it says over its channel and its pipe.

import type { ChildProcess } from 'node:child_process';
import { fork } from 'node:child_process';
import type { Socket } from 'node:net';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import type {
  NodeSettings,
  ReaderQuestion,
  ReaderReply,
  RoundOrder,
} from '../../src/agent/channel.ts';
import { gather, pipe } from '../../src/agent/channel.ts';
import type { Report } from '../../src/agent/rules-reader.ts';
import { withPrograms } from '../processes.ts';

const dump = ['*nat', ':PREROUTING ACCEPT [0:0]', '-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp'];
const rule = `${dump.join('\n')} --dport 443 -j DNAT --to-destination 10.0.0.1:6443\nCOMMIT`;

const settings: NodeSettings = {
  node: 'node-a',
  nodeIPs: ['172.18.0.2'],
  podCIDRs: [],
  proxyConfig: null,
  limits: withPrograms({ 'iptables-nft-save': `echo '${rule}'` }),
};

function start(order: RoundOrder): ChildProcess {
  const program = join(import.meta.dirname, '../../src/agent/rules-reader.ts');
  const child = fork(program, {
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc', 'pipe'],
  });
  child.send(order);
  return child;
}

const replyOf = (child: ChildProcess): Promise<ReaderReply> =>
  new Promise((resolve) => child.once('message', resolve));

async function letGo(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.disconnect();
  expect(await ended).toBe(0);
}

async function readingOf(child: ChildProcess) {
  const reply = await replyOf(child);
  if (reply.kind !== 'read') throw new Error(reply.kind);
  const { reading } = reply;
  const { reportSize, packedSize } = reading;
  const whole = await gather(child.stdio[pipe] as Socket, reportSize + packedSize);
  const report = JSON.parse(whole.toString('utf8', 0, reportSize)) as Report;
  return { reading, report, bytes: whole.subarray(reportSize) };
}

test('a node with incomplete dumps is unknown', async () => {
  const said = "# Table \\`nat' is incompatible, use 'nft' tool.";
  const limits = withPrograms({ 'iptables-nft-save': `echo "${said}"` });
  const child = start({ kind: 'collect', settings: { ...settings, limits }, last: null });
  const { report } = await readingOf(child);
  expect(report.problems).toEqual([
    'iptables-nft-save does not show table ip nat: nft -j list ruleset does',
  ]);
  expect(report.frontends).toEqual({});
  await letGo(child);
});

test('a round, and the same from what it packed', async () => {
  const child = start({ kind: 'collect', settings, last: null });
  const { reading, report, bytes } = await readingOf(child);
  expect(Object.keys(report.frontends)).toEqual(['tcp 10.96.0.1:443']);
  expect(report.problems).toEqual([]);
  const { localAddresses = [], interfaces, routes } = reading.packed?.place ?? {};
  expect(report.localAddresses).toEqual(localAddresses.concat('172.18.0.2'));
  const used = routes?.main.flatMap((route) => route.interface ?? []);
  expect(interfaces).toEqual(expect.arrayContaining(used ?? ['the routes of this machine']));
  expect(reading.frontends).toBe(1);
  const { packed, packedSize } = reading;
  if (packed === null) throw new Error('Nothing was packed');
  const question: ReaderQuestion = { kind: 'details', key: 'tcp 10.96.0.1:443' };
  child.send(question);
  const first = await replyOf(child);
  await letGo(child);
  const again = start({ kind: 'unpack', packed, packedSize });
  (again.stdio[pipe] as Socket).write(bytes);
  again.send(question);
  const second = await replyOf(again);
  await letGo(again);
  expect(JSON.stringify(first)).toContain('10.0.0.1:6443');
  expect({ ...second, cpu: 0 }).toEqual({ ...first, cpu: 0 });
});

test('rules that did not change since the last round are not parsed again', async () => {
  const first = start({ kind: 'collect', settings, last: null });
  const { fingerprint, spent } = (await readingOf(first)).reading;
  await letGo(first);
  const again = start({ kind: 'collect', settings, last: fingerprint });
  const same = await replyOf(again);
  expect(same).toMatchObject({ kind: 'same', spent: { bytes: spent.bytes } });
  await letGo(again);
  const elsewhere = { ...settings, podCIDRs: ['10.9.0.0/24'] };
  const other = start({ kind: 'collect', settings: elsewhere, last: fingerprint });
  expect((await readingOf(other)).reading.fingerprint).not.toBe(fingerprint);
  await letGo(other);
});

test('why there was no round', async () => {
  const child = start({ kind: 'unread', settings, problem: 'somebody ended it' });
  const { reading, report } = await readingOf(child);
  expect(report).toMatchObject({ node: 'node-a', problems: ['somebody ended it'], frontends: {} });
  expect(reading.packed).toBeNull();
  await letGo(child);
});
