// The four ways in which a scenario is run: either mode of kube-proxy in either address family. A
// scenario is written for IPv4; its text becomes that of another way line by line, so that errors
// name the lines of the file.

export interface Variant {
  readonly mode: 'iptables' | 'nftables';
  readonly family: 'IPv4' | 'IPv6';
}

export const variants: readonly Variant[] = (['iptables', 'nftables'] as const).flatMap((mode) =>
  (['IPv4', 'IPv6'] as const).map((family) => ({ mode, family })),
);

/** The text of a scenario in this way: no lines for others, and addresses of the family. */
export function textFor(text: string, { mode, family }: Variant): string {
  let dropped = Infinity;
  const lines = text.split('\n').map((line) => {
    const indent = line.length - line.trimStart().length;
    // A line for another way goes with the deeper ones that continue it.
    if (indent > dropped) return '';
    dropped = Infinity;
    const match = /^( *)in (iptables|nftables|IPv4|IPv6) (.*)$/.exec(line);
    if (match === null) return line;
    const [, space = '', way = '', rest = ''] = match;
    if (way === mode || way === family) return `${space}${rest}`;
    dropped = indent;
    return '';
  });
  const own = lines.join('\n');
  return family === 'IPv4' ? own : own.replaceAll(address, inIPv6);
}

const address = /(?<![\d.])((?:\d+\.){3}\d+)(?:\/(\d+)|:(\d+))?(?![\d.])/g;

/** `10.0.1.5` becomes `fd00:10:0:1::5`: each octet is a group; 127.0.0.1 becomes `::1`. */
function inIPv6(_: string, ip: string, bits?: string, port?: string): string {
  const [a = '', b = '', c = '', d = ''] = ip.split('.');
  const groups = ['fd00', a, b, c];
  while (groups.at(-1) === '0') groups.pop();
  const text = a === '127' ? '::1' : `${groups.join(':')}::${d === '0' ? '' : d}`;
  // A prefix ends at an octet, so at a group: 16 bits for `fd00`, then 16 for each octet.
  if (bits !== undefined) return `${text}/${bits === '32' ? 128 : 16 + 2 * Number(bits)}`;
  return port === undefined ? text : `[${text}]:${port}`;
}
