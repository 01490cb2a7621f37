// Commands on a live cluster: which one it is, how it is connected to, and how they are stopped.

import type { Auditor, AuditorOptions } from '../../auditor/auditor.ts';
import { createAuditor } from '../../auditor/auditor.ts';
import type { MonotonicClock } from '../../auditor/event-loop.ts';
import { createClock } from '../../auditor/event-loop.ts';
import type { LiveAuditor } from '../../auditor/live.ts';
import { connectAuditor } from '../../auditor/live.ts';
import { createConnection, environmentOf } from '../../cluster/api/transport/connection.ts';
import { isConfigured, openAccount } from '../../cluster/api/transport/kubeconfig.ts';
import type { OnProblem } from '../../cluster/decode/problem.ts';
import type { Environment } from '../../cluster/api/transport/request.ts';
import type { ClusterFlags, AuditFlags } from './options.ts';
import { auditorOptions, scopeOf } from './options.ts';

/** Whether a cluster is named, or can be found. */
export function hasCluster({ kubeconfig, context }: ClusterFlags): boolean {
  if (kubeconfig !== undefined || context !== undefined) return true;
  // Within a cluster, what is missing must be said, and nothing else shown in its place.
  return isConfigured(process.env) || process.env.KUBERNETES_SERVICE_HOST !== undefined;
}

export interface Cluster {
  /** Its address, for people. */
  readonly server: string;
  readonly environment: Environment;
  readonly clock: MonotonicClock;
  close(): void;
}

/** Throws an Error for people when the configuration is wrong; connects only when asked for. */
export function openCluster(options: ClusterFlags): Cluster {
  const { kubeconfig, context } = options;
  if (!hasCluster(options)) {
    throw new Error(
      'No cluster is configured: no kubeconfig file, and not in a pod (see --kubeconfig)',
    );
  }
  const account = openAccount({ kubeconfig: kubeconfig ?? null, context: context ?? null });
  const connection = createConnection(account);
  const clock = createClock();
  return {
    server: account.server,
    environment: environmentOf(connection, () => clock.now()),
    clock,
    close: () => {
      connection.close();
    },
  };
}

/** Listeners of `serve`. Commands that audit once have none. */
type LiveListeners = Partial<Pick<AuditorOptions, 'onOpen' | 'onResolve' | 'onJourney'>> & {
  readonly onQuiet?: () => void;
};

/** The auditor of a live cluster, and the watches that keep it up to date. */
export function auditorOf(
  cluster: Cluster,
  options: ClusterFlags & AuditFlags,
  onProblem: OnProblem,
  listeners: LiveListeners = {},
): { auditor: Auditor; attached: LiveAuditor } {
  const { onQuiet = () => undefined, ...others } = listeners;
  const auditor = createAuditor({
    ...auditorOptions(options, onProblem),
    scope: scopeOf(options),
    live: true,
    ...others,
  });
  const attached = connectAuditor({
    environment: cluster.environment,
    clock: cluster.clock,
    auditor,
    endpoints: options.endpoints,
    onProblem,
    onQuiet,
  });
  return { auditor, attached };
}
