// The process that reads rules for an agent, by its replies to requests.

import type { ChildProcess } from 'node:child_process';
import { fork } from 'node:child_process';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import type { createReport } from '../../src/agent/report.ts';
import type {
  NodeSettings,
  ReaderReply,
  ReaderRequest,
  RoundReply,
} from '../../src/agent/rules-reader.ts';
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

function start(): ChildProcess {
  const program = join(import.meta.dirname, '../../src/agent/rules-reader.ts');
  return fork(program, {
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

function ask(child: ChildProcess, request: ReaderRequest): Promise<ReaderReply> {
  child.send(request);
  return new Promise((resolve) => child.once('message', resolve));
}

async function letGo(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.disconnect();
  expect(await ended).toBe(0);
}

const round = { kind: 'round', settings, last: null, problem: null } as const;

async function makeRound(child: ChildProcess, changes: object = {}) {
  const { answer, cpu } = await ask(child, { ...round, ...changes });
  expect(cpu).toBeGreaterThan(0);
  return answer as RoundReply;
}

async function resultOf(child: ChildProcess, changes: object = {}) {
  const { result } = await makeRound(child, changes);
  if (result === null) throw new Error('The rules did not change');
  const report = JSON.parse(result.text.toString()) as ReturnType<typeof createReport>;
  return { result, report };
}

test('a node with incomplete dumps is unknown', async () => {
  const said = "# Table \\`nat' is incompatible, use 'nft' tool.";
  const limits = withPrograms({ 'iptables-nft-save': `echo "${said}"` });
  const child = start();
  const { report } = await resultOf(child, { settings: { ...settings, limits } });
  expect(report.problems).toEqual([
    'iptables-nft-save does not show table ip nat: nft -j list ruleset does',
  ]);
  expect(report.frontends).toEqual({});
  await letGo(child);
});

test('a reader that unpacks the rules of a round gives the same details', async () => {
  const child = start();
  const { result, report } = await resultOf(child);
  const { packed, frontends } = result;
  expect(Object.keys(report.frontends)).toEqual(['tcp 10.96.0.1:443']);
  expect(report.problems).toEqual([]);
  const { localAddresses = [], interfaces, routes } = packed?.facts ?? {};
  expect(report.localAddresses).toEqual(localAddresses.concat('172.18.0.2'));
  const used = routes?.main.flatMap((route) => route.interface ?? []);
  expect(interfaces).toEqual(expect.arrayContaining(used ?? ['the routes of this machine']));
  expect(frontends).toBe(1);
  if (packed === null) throw new Error('Nothing was packed');
  const question = { kind: 'details', key: 'tcp 10.96.0.1:443' } as const;
  const first = await ask(child, question);
  await letGo(child);
  const again = start();
  expect((await ask(again, { kind: 'unpack', packed })).answer).toBeNull();
  const second = await ask(again, question);
  await letGo(again);
  expect(JSON.stringify(first)).toContain('10.0.0.1:6443');
  expect(second.answer).toEqual(first.answer);
});

test('rules that did not change since the last round are not parsed again', async () => {
  const first = start();
  const { result, bytes } = await makeRound(first);
  const last = result?.fingerprint;
  await letGo(first);
  const again = start();
  expect(await makeRound(again, { last })).toMatchObject({ result: null, bytes });
  await letGo(again);
  const elsewhere = { ...settings, podCIDRs: ['10.9.0.0/24'] };
  const other = start();
  const changed = await resultOf(other, { last, settings: elsewhere });
  expect(changed.result.fingerprint).not.toBe(last);
  await letGo(other);
});

test('the report names the problem of the last reader', async () => {
  const child = start();
  const { result, report } = await resultOf(child, { problem: 'the kernel ended it' });
  expect(report).toMatchObject({
    ...{ node: 'node-a', problems: ['the kernel ended it'], frontends: {} },
  });
  expect(result.packed).toBeNull();
  await letGo(child);
});
