// `serve` in a network namespace, with the agent of one node beside it. The agent runs where a load
// balancer has pinned its maps. The address of the node is one of the namespace.

import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { Client, ControlPlane } from '../controlplane/controlplane.ts';
import { createAccount } from '../controlplane/controlplane.ts';
import { carry, type QuickAgent } from '../controlplane/inside.ts';
import type { Outside, Running } from '../controlplane/nodes.ts';
import {
  agentPort,
  createAgents,
  createSpace,
  script,
  startOutside,
  writeKeys,
} from '../controlplane/nodes.ts';
import type { CiliumLoadBalancer } from './load-balancer.ts';

export interface CiliumServer {
  /** The name of the node. */
  readonly node: string;
  readonly outside: Outside;
  readonly startAgent: (balancer: CiliumLoadBalancer) => Running;
  readonly stop: () => Promise<void>;
}

const [node, podCIDR] = ['node-a', '10.244.1.0/24'];
const [address, otherAddress] = ['172.18.0.2', 'fd00:18::2'];

/** The settle window in seconds. */
const settle = 5;

export async function startServer(plane: ControlPlane, client: Client): Promise<CiliumServer> {
  const folder = await mkdtemp(join(tmpdir(), 'cilium-server-'));
  const keys = writeKeys(folder);
  const socket = join(folder, 'api.sock');
  const carrier = await carry(socket, new URL(plane.server).host);
  const space = createSpace(`ea-${String(process.pid)}-cilium`);
  for (const own of [address, otherAddress]) {
    space.run(['ip', 'addr', 'add', own, 'dev', 'lo']);
  }
  writeFileSync(join(folder, 'agents-token'), 'not-used');
  const account = await createAccount(plane, client, folder, 'https://127.0.0.1:6443');
  await createAgents(client, [{ node, address }]);
  const outside = startOutside({ space, folder, keys, account, settle, nodeFlags: [] });
  const { cert, key, ca } = keys;
  const settings: QuickAgent = {
    ...{ node, nodeIPs: [address, otherAddress], podCIDRs: [podCIDR] },
    ...{ dataplane: 'cilium', rounds: '/dev/null', interval: 1, share: 1 },
    ...{ host: address, port: agentPort, access: { token: null, tls: { cert, key, ca } } },
  };
  return {
    node,
    outside,
    startAgent: ({ inside }) =>
      space.start(
        [...inside, process.execPath, script('inside.ts'), 'agent', JSON.stringify(settings)],
        join(folder, 'agent.log'),
      ),
    async stop() {
      await outside.running.stop();
      await outside.bridge.stop();
      space.remove();
      carrier.close();
      await rm(folder, { recursive: true });
    },
  };
}
