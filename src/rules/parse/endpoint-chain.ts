// Recognizes the chains that kube-proxy writes for endpoints: KUBE-SEP in
// pkg/proxy/iptables/proxier.go, kubernetes@v1.36.3. A node of a large cluster has hundreds of
// thousands. Packets to them need the address alone, which is faster to find than to parse rules.

import { parseAddress, parseNetwork } from '../../model/ip.ts';
import type { DnatTarget } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

const comment = String.raw`(?:-m comment --comment (?:"[^"\\\n]*"|[^ "\n]+) )?`;
const protocols = 'tcp|udp|sctp';

/** One rule translates; before it there may be one for packets of the endpoint itself. */
const endpointChain = new RegExp(
  String.raw`-A (\S+) (?:-s (\S+) ${comment}-j \S+\n-A \1 )?(?:-p (${protocols}) )?${comment}` +
    String.raw`(?:-m (?:${protocols}) )?-j DNAT --to-destination ` +
    String.raw`(?:\[([\da-fA-F:.]+)\]|([\d.]+)):(\d{1,5})(?:\n(?!-A \1)|$)`,
  'y',
);

/** The target of a chain whose rules begin at `start`; null if it is not exactly such a chain. */
export function targetAt(text: string, start: number, name: string): DnatTarget | null {
  endpointChain.lastIndex = start;
  const [, chain, source, protocol = '', six, four = '', digits] = endpointChain.exec(text) ?? [];
  if (chain !== name) return null;
  const host = six ?? four;
  const [address, range] = [parseAddress(host), parseNetwork(source ?? host)];
  if (chain !== name || address === null || range === null || range.low !== range.high) return null;
  const isSix = typeof address === 'bigint';
  const isOfFamily = isSix === (six !== undefined) && isSix === (typeof range.low === 'bigint');
  if (!isOfFamily || Number(digits) > 65_535) return null;
  const except = source === undefined ? null : range.low;
  return { address, port: Number(digits), protocol: protocolNumbers[protocol] ?? null, except };
}
