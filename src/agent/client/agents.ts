// Where the agents are: the endpoints of their own headless Service, by the Node that each is on.
// Its EndpointSlices are watched like all others, so nothing is asked of the API server for it.
//
// Of several endpoints on one Node, as there are while an agent is replaced, a ready one counts,
// and of equals the first by address. Endpoints without a Node are passed over: they are no agents.

import type { EndpointSlice } from '../../model/objects.ts';

/** Where to ask. */
export interface AgentAddress {
  readonly host: string;
  readonly port: number;
}

/** The agents by the name of their Node. */
export function agentsOf(slices: Iterable<EndpointSlice>): Map<string, AgentAddress> {
  const found = new Map<string, AgentAddress & { readonly rank: string }>();
  for (const { addressType, ports, endpoints } of slices) {
    const port = ports.find((port) => port.protocol === 'TCP' && port.port !== null)?.port;
    if (addressType === 'FQDN' || typeof port !== 'number') continue;
    for (const { addresses, node, ready, terminating } of endpoints) {
      const [host] = addresses;
      if (host === undefined || node === null || node === '') continue;
      const isReady = ready !== false && terminating !== true;
      const rank = `${isReady ? 0 : 1} ${addressType} ${host}`;
      const known = found.get(node);
      if (known === undefined || rank < known.rank) found.set(node, { host, port, rank });
    }
  }
  return new Map([...found].map(([node, { host, port }]) => [node, { host, port }]));
}
