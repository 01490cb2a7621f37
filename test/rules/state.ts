// A packet's state for tests: the first of a TCP connection from a pod, before any rule.

import type { PacketState } from '../../src/rules/match.ts';

export const stateOf = (changes: Partial<PacketState> = {}): PacketState => ({
  family: 'ip',
  from: 'pod',
  source: 0x0a000001,
  protocol: 6,
  isLocal: (address) => address === 0x7f000001,
  interfaces: null,
  original: { address: 0x0a600001, port: 80 },
  hook: 'prerouting',
  destination: 0x0a600001,
  destinationPort: 80,
  toNode: null,
  in: 'veth1',
  out: '',
  mark: 0,
  markKnown: 0xffffffff,
  connectionMark: 0,
  connectionMarkKnown: 0xffffffff,
  entry: 'new',
  translated: false,
  sourceTranslated: false,
  goal: null,
  rewritten: false,
  masqueraded: false,
  remembered: null,
  affinity: null,
  trace: null,
  asked: null,
  ...changes,
});
