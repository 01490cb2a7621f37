import { fc, test as property } from '@fast-check/vitest';
import { expect } from 'vitest';

import { parseIptablesSave } from '../../../src/rules/parse/iptables-save.ts';
import type { Match } from '../../../src/rules/ruleset.ts';
import { rulesOf } from '../../../src/rules/ruleset.ts';
import { candidatesOf, evaluate } from '../../../src/rules/walk/match.ts';
import { stateOf } from '../rulesets.ts';

const address = fc.integer({ min: 1, max: 4 }).map((host) => `10.96.0.${host}`);
const port = fc.integer({ min: 1, max: 4 });

const rule = fc.oneof(
  { weight: 4, arbitrary: address.map((host) => `-d ${host}/32 -p tcp`) },
  { weight: 4, arbitrary: port.map((number) => `-p tcp -m tcp --dport ${number}`) },
  fc.tuple(address, port).map(([host, number]) => `-d ${host}/32 -m tcp --dport ${number}`),
  address.map((host) => `! -d ${host}/32`),
  fc.constant('-d 10.96.0.0/16'),
  fc.constant('-m recent --set --name x --rsource'),
  port.map((number) => `-m multiport --dports ${number},80`),
);

property.prop([fc.array(rule, { maxLength: 40 }), fc.integer({ min: 1, max: 4 }), port])(
  'no rule that may match is left out, and the order stays',
  (rules, host, destinationPort) => {
    // Others, so that there is an index.
    const others = Array.from({ length: 300 }, (_, at) => `-d 10.97.${at >> 8}.${at & 255}/32`);
    const lines = [...rules, ...others].map((text) => `-A X ${text} -j DROP`);
    const text = ['*filter', ':X - [0:0]', ...lines, 'COMMIT', ''].join('\n');
    const chain = parseIptablesSave(text, 'ip').tables[0]?.chains.get('X');
    if (chain === undefined) throw new Error('No chain');
    const state = stateOf({ destination: 0x0a600000 + host, destinationPort });
    const got = candidatesOf(chain, state).map((one) => rulesOf(chain).indexOf(one));
    const possible = rulesOf(chain).filter(({ statements }) =>
      statements.every(
        (statement) =>
          ['drop', 'remember'].includes(statement.kind) ||
          evaluate(statement as Match, state) !== 'no',
      ),
    );
    const want = possible.map((one) => rulesOf(chain).indexOf(one));
    expect(got.filter((place) => want.includes(place))).toEqual(want);
    expect(got).toEqual([...got].sort((a, b) => a - b));
    expect(got.length).toBeLessThanOrEqual(rules.length);
  },
);
