// The agent of a node with a shorter rest between rounds than it would have, so that a test need
// not wait for minutes; it is the same in all else. Its settings are one JSON document.

import { readFileSync } from 'node:fs';

import { defaultLimits } from '../../src/agent/collect.ts';
import { createAgent } from '../../src/agent/schedule.ts';
import type { Access } from '../../src/agent/server.ts';
import { createAgentServer } from '../../src/agent/server.ts';

export interface QuickAgent {
  readonly node: string;
  readonly nodeIPs: readonly string[];
  readonly podCIDRs: readonly string[];
  /** A file. */
  readonly proxyConfig: string;
  readonly interval: number;
  readonly share: number;
  readonly host: string;
  readonly port: number;
  readonly access: Access;
}

if (import.meta.filename === process.argv[1]) {
  const given = JSON.parse(process.argv[2] ?? '{}') as QuickAgent;
  const { proxyConfig: source, host, port, access, ...settings } = given;
  const proxyConfig = { source, text: readFileSync(source, 'utf8') };
  const agent = createAgent({ ...settings, proxyConfig, limits: defaultLimits });
  createAgentServer(agent, access).listen(port, host);
  // For the test, which must know how long to wait.
  setInterval(() => {
    const { last, pause } = agent.cost();
    process.stdout.write(`${JSON.stringify({ last, pause })}\n`);
  }, 1000);
  await agent.run(new AbortController().signal);
}
