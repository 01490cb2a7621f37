// Recognizes the chains that kube-proxy writes for endpoints: KUBE-SEP in
// pkg/proxy/iptables/proxier.go, kubernetes@v1.36.3. A node of a large cluster has hundreds of
// thousands. Packets to them need the address alone, which is faster to find than to parse rules.

import { digitsAt, parseAddress, parseNetwork } from '../address.ts';
import type { DnatTarget } from '../ruleset.ts';
import { protocolNumbers } from './iptables-match.ts';

const protocols = ['tcp', 'udp', 'sctp'];
const comment = /-m comment --comment (?:"[^"\\\n]*"|[^ "\n]+) /y;
const dnat = '-j DNAT --to-destination ';

/**
 * The target of a chain whose rules begin at `start`; null if it is not exactly such a chain. One
 * rule translates; before it there may be one for packets of the endpoint itself.
 */
export function targetAt(text: string, start: number, name: string): DnatTarget | null {
  const rule = `-A ${name} `;
  if (!text.startsWith(rule, start)) return null;
  let at = start + rule.length;
  let except = null;
  if (text.startsWith('-s ', at)) {
    const space = text.indexOf(' ', at + 3);
    const source = parseNetwork(text, at + 3, space);
    const jump = behindComment(text, space + 1);
    const end = text.indexOf('\n', jump);
    if (source === null || source.low !== source.high) return null;
    if (!text.startsWith('-j ', jump) || text.lastIndexOf(' ', end) !== jump + 2) return null;
    if (!text.startsWith(rule, end + 1)) return null;
    except = source.low;
    at = end + 1 + rule.length;
  }
  const protocol = protocols.find((word) => text.startsWith(`-p ${word} `, at));
  if (protocol !== undefined) at += protocol.length + 4;
  at = behindComment(text, at);
  const module = protocols.find((word) => text.startsWith(`-m ${word} `, at));
  if (module !== undefined) at += module.length + 4;
  if (!text.startsWith(dnat, at)) return null;
  const to = at + dnat.length;
  const newline = text.indexOf('\n', to);
  const end = newline < 0 ? text.length : newline;
  if (text.startsWith(rule.trimEnd(), end + 1)) return null;
  const colon = text.lastIndexOf(':', end);
  const port = digitsAt(text, colon + 1, end);
  const isSix = text.charAt(to) === '[' && text.charAt(colon - 1) === ']';
  const address = isSix ? parseAddress(text, to + 1, colon - 1) : parseAddress(text, to, colon);
  if (port === null || port > 65_535 || address === null) return null;
  if (isSix !== (typeof address === 'bigint')) return null;
  if (except !== null && typeof except !== typeof address) return null;
  return { address, port, protocol: protocolNumbers[protocol ?? ''] ?? null, except };
}

function behindComment(text: string, at: number): number {
  comment.lastIndex = at;
  return comment.test(text) ? comment.lastIndex : at;
}
