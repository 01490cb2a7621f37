// Records the scenarios that upstream tests its load balancer with, pkg/loadbalancer/tests/testdata
// of Cilium: `npm run -s cilium:scenarios -- OUT`. A folder is written after each change of
// objects. A scenario ends early where it needs what only upstream's test has, such as an earlier
// process that left its maps.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';

import { parse } from 'yaml';

import type { Thing } from '../controlplane/controlplane.ts';
import { goProgram } from '../processes.ts';
import { newestCilium, startLoadBalancer } from './load-balancer.ts';
import type { Flags } from './record.ts';
import { flagTexts, writeState } from './record.ts';

/** A scenario in the format of txtar: a script, then files. */
interface Scenario {
  readonly flags: Flags;
  readonly lines: readonly string[];
  readonly files: ReadonlyMap<string, string>;
}

const skippedFlags = /^(?:lb-test-fault-probability|metrics-sampling-interval)$/;

/** Reads a scenario; checks, which need no state of their own, are among its lines. */
export function readScenario(text: string): Scenario {
  const [script = '', ...parts] = text.split(/^-- (?<name>\S+) --\n/m);
  const files = new Map<string, string>();
  for (let at = 0; at < parts.length; at += 2) files.set(parts[at] ?? '', parts[at + 1] ?? '');
  const lines = script.split('\n').map((line) => line.trim());
  const words = (lines.find((line) => line.startsWith('#!')) ?? '').split(/\s+/).slice(1);
  const pairs = words.map((word): [string, string | true] => {
    const [name = '', value] = word.replace(/^--/, '').split('=');
    return [name, value ?? true];
  });
  return {
    flags: {
      'bpf-lb-maglev-table-size': '1021',
      ...Object.fromEntries(pairs.filter(([name]) => !skippedFlags.test(name) && name !== '')),
    },
    lines: lines.filter((line) => line !== '' && !line.startsWith('#')),
    files,
  };
}

const kinds: Readonly<Record<string, 'services' | 'endpointslices' | 'pods' | undefined>> = {
  Service: 'services',
  EndpointSlice: 'endpointslices',
  Pod: 'pods',
};

type Objects = Map<string, Thing & { readonly kind: string }>;

/** Applies `k8s/add`, `k8s/update` or `k8s/delete` to the objects that a recording lists. */
function applyTo(objects: Objects, action: string, folder: string, files: readonly string[]) {
  for (const file of files) {
    const thing = parse(readFileSync(join(folder, file), 'utf8')) as Thing & { kind: string };
    const { name, namespace = 'default' } = thing.metadata;
    const key = `${thing.kind} ${namespace}/${name}`;
    if (action === 'delete') objects.delete(key);
    else
      objects.set(key, {
        ...thing,
        metadata: { uid: key, resourceVersion: '1', ...thing.metadata, namespace },
      });
  }
}

/** Commands that check, print, or wait for what settle waits for. */
const checks = new Set([
  ...['db', 'db/cmp', 'db/empty', 'db/prefix', 'db/list', 'db/get', 'cmp', 'grep', 'empty'],
  ...['lb/maps-dump', 'lb/maps-empty', 'lb/maps-snapshot', 'stdout', 'metrics', 'sleep'],
  ...['test/bpfops-summary', 'test/init-wait', 'test/set-node-ip'],
]);

/** Commands of upstream's test that this process does not have, or that leave stale maps. */
const ends = new Set([
  ...['lb/maps-restore', 'hive/stop', 'hive/recreate', 'k8s/resync', 'test/bpfops-reset'],
  ...['mv', 'exec', '[privileged]'],
]);

const nodeName = 'testnode';

/** Runs a scenario and writes a folder for each state; returns how many there are. */
async function recordScenario(path: string, out: string): Promise<number> {
  const name = basename(path, '.txtar');
  const { flags, lines, files } = readScenario(readFileSync(path, 'utf8'));
  if ('kube-proxy-replacement' in flags || 'lb-state-file' in flags) return 0;
  const folder = mkdtempSync(join(tmpdir(), 'cilium-scenario-'));
  for (const [file, text] of files) writeFileSync(join(folder, file), text);
  let node = {
    name: nodeName,
    labels: {},
    addresses: [] as string[],
    otherAddresses: [] as string[],
  };
  const balancer = await startLoadBalancer({
    node,
    flags: flagTexts(flags),
    kubeconfig: null,
    folder,
  });
  const objects: Objects = new Map();
  let [states, isChanged, isStarted] = [0, false, false];
  const write = async (): Promise<void> => {
    if (!isChanged || !isStarted) return;
    await balancer.settle();
    const state = join(out, `scenario-${name}-${states++}`);
    const file = join(state, 'objects.json');
    mkdirSync(state, { recursive: true });
    writeFileSync(`${file}.gz`, gzipSync(JSON.stringify(listsOf(objects, node))));
    await writeState(balancer, { version: newestCilium, node, flags, objects: file }, state);
    isChanged = false;
  };
  try {
    for (const line of lines) {
      const [command = '', ...args] = line.replace(/^[*!?] */, '').split(/\s+/);
      if (checks.has(command)) {
        await write();
        continue;
      }
      if (ends.has(command)) break;
      await balancer.command(line.replace(/^[*!?] */, ''));
      // No table shows that the reconciler has yet to follow the addresses of the node.
      if (/^db\/(?:insert|delete)$/.test(command) && isStarted) await sleep(5000);
      const action = /^k8s\/(add|update|delete)$/.exec(command)?.[1];
      if (action !== undefined) applyTo(objects, action, folder, args);
      if (command.startsWith('hive')) isStarted = true;
      if (command === 'test/set-node-labels') {
        node = {
          ...node,
          labels: Object.fromEntries(args.map((arg) => arg.split('=') as [string, string])),
        };
      }
      if (command === 'db/insert') node = { ...node, ...addressesIn(node, folder, args.slice(1)) };
      if (command === 'db/delete') {
        const { addresses: gone } = addressesIn(noAddresses, folder, args.slice(1));
        node = { ...node, addresses: node.addresses.filter((address) => !gone.includes(address)) };
      }
      // Cilium applies changed labels of the node with the next event of a Service only.
      isChanged ||= action !== undefined || /^(?:test\/update|db\/(?:insert|delete))/.test(command);
    }
    await write();
  } finally {
    await balancer.stop();
    rmSync(folder, { recursive: true });
  }
  return states;
}

const noAddresses = { addresses: [], otherAddresses: [] };

function addressesIn(
  node: { readonly addresses: readonly string[]; readonly otherAddresses: readonly string[] },
  folder: string,
  files: readonly string[],
) {
  const found = files.map((file) => {
    return parse(readFileSync(join(folder, file), 'utf8')) as { addr: string; nodeport: boolean };
  });
  const of = (isServed: boolean): string[] =>
    found.filter(({ nodeport }) => nodeport === isServed).map(({ addr }) => addr);
  return {
    addresses: [...new Set([...node.addresses, ...of(true)])],
    otherAddresses: [...new Set([...node.otherAddresses, ...of(false)])],
  };
}

function listsOf(objects: Objects, { labels }: { readonly labels: object }) {
  const lists: Record<string, unknown[]> = {
    nodes: [
      {
        metadata: { name: nodeName, uid: nodeName, resourceVersion: '1', labels },
        spec: {},
        status: { addresses: [] },
      },
    ],
    services: [],
    endpointslices: [],
    pods: [],
  };
  for (const thing of objects.values()) lists[kinds[thing.kind] ?? 'pods']?.push(thing);
  return lists;
}

/** Upstream's folder with scenarios, in the module cache of Go. */
function scenarioFolder(): string {
  const module = 'github.com/cilium/cilium';
  const args = ['list', '-m', '-f', '{{.Dir}}', module];
  const cwd = join(import.meta.dirname, 'load-balancer');
  const folder = execFileSync(goProgram(), args, { cwd, encoding: 'utf8' }).trim();
  return join(folder, 'pkg/loadbalancer/tests/testdata');
}

if (import.meta.main) {
  const [out, only = ''] = process.argv.slice(2);
  if (out === undefined) throw new Error('Usage: scenarios OUT [NAME]');
  const folder = scenarioFolder();
  const names = readdirSync(folder).filter(
    (file) => file.endsWith('.txtar') && file.includes(only),
  );
  for (const file of names) {
    const states = await recordScenario(join(folder, file), out).catch((error: unknown) =>
      String(error),
    );
    console.log(`${file}: ${states}`);
  }
}
