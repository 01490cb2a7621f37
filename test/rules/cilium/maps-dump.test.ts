import { expect, test } from 'vitest';

import { serviceFlags } from '../../../src/rules/cilium/map-entries.ts';
import { readMapsDump } from '../../../src/rules/cilium/maps-dump.ts';

const balanced = 'FLAGS=LoadBalancer+Local+two-scopes+check source-range+deny';

test('every kind of line is read', () => {
  const { entries, families } = readMapsDump(`
BE: ID=2 ADDR=10.244.0.1:8080/TCP STATE=active
REV: ID=4 ADDR=10.97.69.6:80
SVC: ID=4 ADDR=10.97.69.6:80/TCP SLOT=0 LBALG=maglev AFFTimeout=60 COUNT=4 QCOUNT=1 ${balanced}
SVC: ID=4 ADDR=[fd00::6]:80/TCP/i SLOT=1 BEID=2 COUNT=0 QCOUNT=0 FLAGS=ClusterIP+non-routable
AFF: ID=4 BEID=2
SRCRANGE: ID=4 CIDR=198.51.100.0/24
MAGLEV: ID=4 INNER=[2(170), 3(81)]
`);
  const address = { family: 'ip', address: '10.97.69.6', port: 80 };
  const places = new Map([
    [2, 170],
    [3, 81],
  ]);
  const { loadBalancer, externalLocal, twoScopes, sourceRanges, deniesOrQuarantined, routable } =
    serviceFlags;
  expect(families).toEqual(['IPv4', 'IPv6']);
  expect(entries).toEqual([
    {
      ...{ kind: 'backend', id: 2, cluster: 0, protocol: 'tcp' },
      ...{ family: 'ip', address: '10.244.0.1', port: 8080 },
    },
    { kind: 'reverse nat', id: 4, ...address },
    {
      ...{ ...address, kind: 'service', protocol: 'tcp', scope: 0, id: 4 },
      ...{ word: 2 * 2 ** 24 + 60, count: 4, quarantined: 1 },
      flags:
        loadBalancer | externalLocal | twoScopes | sourceRanges | deniesOrQuarantined | routable,
    },
    { kind: 'slots', frontend: '[fd00::6]:80/tcp/i', slots: [1, 2] },
    { kind: 'affinity match', id: 4, backend: 2 },
    { kind: 'source range', id: 4, range: { family: 'IPv4', low: 0xc6336400, high: 0xc63364ff } },
    { kind: 'maglev', family: 'ip', id: 4, places },
    { kind: 'maglev', family: 'ip6', id: 4, places },
  ]);
});

test.each([
  ['another kind', 'FOO: ID=4', 'Line 1: the kind of entry'],
  ['no id', 'BE: ADDR=10.0.0.1:80/TCP', 'Line 1: the entry without ID'],
  ['an id that is sanitized', 'BE: ID=<non-zero> ADDR=10.0.0.1:80/TCP', 'the number ID'],
  ['no address', '\nREV: ID=1 ADDR=x', 'Line 2: the address'],
  ['a flag', 'SVC: ID=4 ADDR=10.0.0.1:80/TCP SLOT=1 BEID=2 COUNT=0 QCOUNT=0 FLAGS=new', 'flag new'],
])('a line with %s is refused', (_, line, message) => {
  expect(() => readMapsDump(`${line}\n`)).toThrow(message);
});

test('a frontend for all protocols is refused, but not one for all ports', () => {
  const lineOf = (address: string): string =>
    `SVC: ID=4 ADDR=${address} SLOT=0 LBALG=undef AFFTimeout=0 COUNT=0 QCOUNT=0 FLAGS=ClusterIP\n`;
  expect(() => readMapsDump(lineOf('10.0.0.1:80/ANY'))).toThrow(/before 1\.17/);
  expect(readMapsDump(lineOf('10.0.0.1:0/ANY')).entries).toHaveLength(1);
});

test('a line that is cut off is refused', () => {
  expect(() => readMapsDump('REV: ID=4 ADDR=10.97.69.6:8')).toThrow('the dump is cut off');
});
