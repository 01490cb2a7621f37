// What reading and walking a large node costs: `node --expose-gc test/bench/rules.ts [SERVICES]`
// makes a dump of 10,000 Services with 15 endpoints each, reads it, and walks every frontend from a
// pod. Times are of the CPU, of one process, the best of the rounds.

import { parseIptablesSave } from '../../src/rules/parse/iptables-save.ts';
import { walk } from '../../src/rules/walk/walk.ts';
import { generateDump } from './dump.ts';

const rounds = 3;

function cpuMilliseconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function timed<T>(work: () => T): readonly [T, number] {
  const start = cpuMilliseconds();
  const result = work();
  return [result, cpuMilliseconds() - start];
}

const { text, frontends } = generateDump(Number(process.argv[2] ?? 10_000), 15, 1);
const bytes = new TextEncoder().encode(text);
const megabytes = bytes.length / 1e6;
const node = { localAddresses: ['172.18.0.2'] };
globalThis.gc?.();
const before = process.memoryUsage().rss;

for (let round = 0; round < rounds; round++) {
  const [ruleset, parse] = timed(() => parseIptablesSave(bytes, 'ip'));
  const afterParse = process.memoryUsage().rss;
  const [destinations, walks] = timed(() => {
    let count = 0;
    for (const dst of frontends) {
      const packet = { from: 'pod', src: '10.244.1.5', dst, protocol: 'tcp', dport: 80 } as const;
      count += walk(ruleset, node, packet).destinations.size;
    }
    return count;
  });
  console.log(
    JSON.stringify({
      megabytes: Math.round(megabytes),
      parseMilliseconds: Math.round(parse),
      megabytesPerSecond: Math.round(megabytes / (parse / 1000)),
      walkMilliseconds: Math.round(walks),
      destinations,
      parseMemoryRatio: Math.round((afterParse - before) / bytes.length),
      memoryMegabytes: Math.round((process.memoryUsage().rss - before) / 1e6),
    }),
  );
}
