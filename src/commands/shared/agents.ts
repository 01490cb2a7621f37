// The scraper of the node agents of a live cluster, with the credentials of the flags.

import { readFileSync } from 'node:fs';

import type { AgentCredentials } from '../../agent/client/client.ts';
import { createAgentClient } from '../../agent/client/client.ts';
import type { Scraper } from '../../agent/client/scraper.ts';
import { createScraper } from '../../agent/client/scraper.ts';
import type { Auditor } from '../../auditor/auditor.ts';
import type { LiveAuditor } from '../../auditor/live.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import { problemAt } from '../../cluster/decode/problem.ts';
import type { Cluster } from './cluster.ts';
import type { AgentsFlags, ClusterFlags } from './options.ts';

const read = (path: string): string => readFileSync(path, 'utf8');

/** Throws an Error for people if flags conflict or a file cannot be read. */
function credentialsOf(options: AgentsFlags): AgentCredentials {
  const { agents, agentsTokenFile, agentsCa, agentsCert, agentsKey, agentsServerName } = options;
  if ((agentsCert === undefined) !== (agentsKey === undefined)) {
    throw new Error('--agents-cert and --agents-key belong together');
  }
  const token = agentsTokenFile === undefined ? null : read(agentsTokenFile).trim();
  if (token === '') throw new Error(`${String(agentsTokenFile)}: The token is empty`);
  const pem = (path?: string): string | undefined => (path === undefined ? path : read(path));
  const isPlain = [agentsCa, agentsCert, agentsServerName].every((value) => value === undefined);
  if (isPlain) return { token, tls: null };
  const servername = agentsServerName ?? `${agents?.name ?? ''}.${agents?.namespace ?? ''}.svc`;
  const tls = { ca: pem(agentsCa), cert: pem(agentsCert), key: pem(agentsKey), servername };
  return { token, tls };
}

/** Scrapes the agents and delivers their reports to the auditor; `null` without --agents. */
export function createAgentScraper(
  options: AgentsFlags & ClusterFlags,
  { clock, environment }: Cluster,
  auditor: Auditor,
  live: LiveAuditor,
  onProblem: OnProblem,
): Scraper | null {
  const { agents, namespaces, excludeNamespaces, shard } = options;
  if (agents === undefined) return null;
  if (namespaces !== undefined || excludeNamespaces !== undefined || shard !== undefined) {
    throw new Error('--agents needs the whole cluster: no --namespaces, no --shard');
  }
  const key = `${agents.namespace}/${agents.name}`;
  return createScraper({
    client: createAgentClient(credentialsOf(options)),
    now: () => clock.now(),
    random: () => environment.random(),
    sleep: (seconds, signal) => environment.sleep(seconds, signal),
    slices() {
      const services = auditor.serviceAuditor();
      return services && (services.audited.get(key)?.record.slices ?? []);
    },
    nodes: () => auditor.store.listers.nodes.keys(),
    deliver: live.deliver,
    onTrouble(node, why) {
      onProblem(problemAt(`Agent of node ${node}`, null, why, {}));
    },
  });
}
