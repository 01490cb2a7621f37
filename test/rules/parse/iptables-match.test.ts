import { expect, test } from 'vitest';

import type { Option } from '../../../src/rules/parse/iptables-match.ts';
import { matchesOf } from '../../../src/rules/parse/iptables-match.ts';

/** `! --dport 80` and the like. */
function optionsOf(text: string): Option[] {
  return [...text.matchAll(/(! )?(--\S+)((?: (?![!-])\S+)*)/g)].map(
    ([, not, name = '', values = '']) => {
      return { name, negate: not !== undefined, values: values.split(' ').slice(1) };
    },
  );
}

const ports = (field: string, low: number, high = low): object => {
  return { kind: 'field', field, mask: null, ranges: [{ low, high }], negate: false };
};

test.each([
  ['tcp', '--dport 80', [ports('destination port', 80)]],
  ['sctp', '--sport 5:7', [ports('source port', 5, 7)]],
  ['udp', '! --dport 53', [{ ...ports('destination port', 53), negate: true }]],
  ['multiport', '--dports 80:81', [ports('destination port', 80, 81)]],
  ['multiport', '--ports 80', [{ kind: 'unknown', text: '-m multiport --ports 80' }]],
  ['iprange', '--src-range 10.0.0.1-10.0.0.2', [ports('source', 0x0a000001, 0x0a000002)]],
  ['tcp', '--tcp-flags SYN,ACK SYN', [{ ...ports('tcp flags', 2), mask: 18 }]],
  ['conntrack', '--ctstate NEW,DNAT', [{ kind: 'state', states: ['new', 'dnat'], negate: false }]],
  ['state', '! --state NEW', [{ kind: 'state', states: ['new'], negate: true }]],
  ['conntrack', '--ctorigdstport 80', [ports('original destination port', 80)]],
  ['mark', '--mark 0x1/0x3', [{ ...ports('mark', 1), mask: 3 }]],
  ['connmark', '--mark 0x1', [ports('connection mark', 1)]],
  ['rpfilter', '--validmark', [{ kind: 'note', text: '-m rpfilter --validmark' }]],
  ['rpfilter', '--invert', [{ kind: 'never', text: '-m rpfilter --invert' }]],
  ['ttl', '--ttl-lt 2', [{ kind: 'never', text: '-m ttl --ttl-lt 2' }]],
  ['ttl', '--ttl-lt 20', [{ kind: 'unknown', text: '-m ttl --ttl-lt 20' }]],
  ['statistic', '--mode nth --every 4', [{ kind: 'random', probability: 0.25, every: 4 }]],
  ['statistic', '--mode nth ! --every 4', [{ kind: 'random', probability: 0.75, every: 4 }]],
])('-m %s %s', (module, options, want) => {
  expect(matchesOf(module, optionsOf(options), `-m ${module} ${options}`)).toEqual(want);
});
