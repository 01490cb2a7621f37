// Reads the dump of iptables-legacy-save on standard input and walks it in this process as often as
// its argument says; prints the cost of the last walk as JSON. node.ts bundles it and
// starts it.

import { readFileSync } from 'node:fs';

import { fingerprintOf, programs } from '../../src/agent/collect.ts';
import { contextOf, digestsOf, readDumps } from '../../src/agent/report.ts';
import { createWalk } from '../../src/rules/walk/walk.ts';
import { cpuMicros } from './measure.ts';

/** CPU seconds, and sizes. */
export interface Walked {
  readonly parse: number;
  readonly walk: number;
  /** Of all packets of all frontends, after that. */
  readonly digests: number;
  /** All that a round does which finds the rules as they were. */
  readonly fingerprint: number;
  readonly frontends: number;
  readonly destinations: number;
  readonly bytes: number;
}

const place = {
  ...{ node: 'bench', localAddresses: ['172.18.0.2'], interfaces: ['lo'], routes: null },
  ...{ nodeIPs: ['172.18.0.2'], podCIDRs: ['10.244.0.0/24'] },
};

function walkOnce(bytes: Buffer): Walked {
  const [program] = programs.filter(({ name }) => name === 'iptables-legacy-save');
  if (program === undefined) throw new Error('No program');
  const begun = cpuMicros();
  const parsed = readDumps([{ program, bytes }]);
  const read = cpuMicros();
  const walk = createWalk(parsed.ruleset, contextOf(place));
  let destinations = 0;
  for (const { address, protocol, port: dport } of parsed.frontends) {
    const packet = { from: 'pod', src: '10.244.0.5', dst: address ?? '', protocol, dport } as const;
    if (address !== null) destinations += walk(packet).destinations.size;
  }
  const walked = cpuMicros();
  const frontends = digestsOf(parsed, place).size;
  const digested = cpuMicros();
  fingerprintOf({ dumps: [{ program, bytes }], states: {}, problems: [] }, place);
  return {
    ...{ parse: (read - begun) / 1e6, walk: (walked - read) / 1e6 },
    ...{ digests: (digested - walked) / 1e6, fingerprint: (cpuMicros() - digested) / 1e6 },
    ...{ frontends, destinations, bytes: bytes.length },
  };
}

const bytes = readFileSync(0);
for (let before = 1; before < Number(process.argv[2]); before++) walkOnce(bytes);
process.stdout.write(JSON.stringify(walkOnce(bytes)));
