// Recognizes the chains that kube-proxy writes for endpoints: KUBE-SEP in
// pkg/proxy/iptables/proxier.go, kubernetes@v1.36.3. A node of a large cluster has hundreds of
// thousands. Packets to them need the address alone, which is faster to find than to parse rules.

import { digitsAt, parseAddress } from '../address.ts';
import type { DnatTarget } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

const comment = '(?:-m comment --comment (?:"[^"\\\\\\n]*"|[^ "\\n]+) )?';

/** One rule that translates; before it there may be one for packets of the endpoint itself. */
const endpointChain = new RegExp(
  `(?:-A (\\S+) -s ([^ /\\n]+)/(?:32|128) ${comment}-j \\S+\\n)?` +
    `-A (\\S+) (?:-p (tcp|udp|sctp) )?${comment}(?:-m (?:tcp|udp|sctp) )?` +
    '-j DNAT --to-destination (?:([\\d.]+)|\\[([^\\]\\n]+)\\]):(\\d{1,5})(?:\\n|$)',
  'y',
);

/** The target of a chain whose rules begin at `start`; null if it is not exactly such a chain. */
export function targetAt(text: string, start: number, name: string): DnatTarget | null {
  endpointChain.lastIndex = start;
  const found = start < 0 ? null : endpointChain.exec(text);
  if (found?.[3] !== name || (found[1] ?? name) !== name) return null;
  const [, , source, , protocol, four, six = '', port = ''] = found;
  const isLast = !text.startsWith(`-A ${name}`, endpointChain.lastIndex);
  const address = parseAddress(four ?? six);
  const number = digitsAt(port, 0, port.length);
  const except = source === undefined ? null : parseAddress(source);
  if (!isLast || address === null || number === null || number > 65_535) return null;
  if (source !== undefined && typeof except !== typeof address) return null;
  const protocolNumber = protocol === undefined ? null : (protocolNumbers[protocol] ?? null);
  return { address, port: number, protocol: protocolNumber, except };
}
