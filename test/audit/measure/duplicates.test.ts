import { describe, expect, test } from 'vitest';

import { createDuplicateTotals, setDuplicates } from '../../../src/audit/measure/duplicates.ts';
import type { Endpoint, EndpointSlice } from '../../../src/model/objects.ts';
import { endpoint, port, slice, target } from '../../build.ts';

const of = (...entries: Endpoint[]): EndpointSlice => slice({ endpoints: entries });
const at = (address: string, more: Partial<Endpoint> = {}): Endpoint =>
  endpoint({ addresses: [address], ...more });

describe('what counts as a duplicate', () => {
  const cases: [string, EndpointSlice[], number, number][] = [
    ['nothing twice', [of(at('10.0.0.1'), at('10.0.0.2'))], 0, 0],
    ['in two slices', [of(at('10.0.0.1')), of(at('10.0.0.1'))], 1, 0],
    ['twice in one slice', [of(at('10.0.0.1'), at('10.0.0.1'))], 1, 0],
    ['three times is one endpoint', [of(at('10.0.0.1')), of(at('10.0.0.1'), at('10.0.0.1'))], 1, 0],
    [
      'the pod plays no role',
      [of(at('10.0.0.1')), of(at('10.0.0.1', { target: target('b') }))],
      1,
      0,
    ],
    [
      'under other ports it is another endpoint',
      [of(at('10.0.0.1')), slice({ ports: [port({ port: 9090 })], endpoints: [at('10.0.0.1')] })],
      0,
      0,
    ],
    [
      'ready here and not ready there',
      [of(at('10.0.0.1')), of(at('10.0.0.1', { ready: false, serving: false }))],
      0,
      1,
    ],
    [
      'terminating here only',
      [of(at('10.0.0.1')), of(at('10.0.0.1', { terminating: true }))],
      0,
      1,
    ],
    [
      'absent conditions are ready, serving and not terminating',
      [of(at('10.0.0.1', { ready: null, serving: null, terminating: null })), of(at('10.0.0.1'))],
      1,
      0,
    ],
    [
      'one conflict makes it conflicting, whatever comes after',
      [of(at('10.0.0.1')), of(at('10.0.0.1', { ready: false })), of(at('10.0.0.1'))],
      0,
      1,
    ],
    ['however the address is written', [of(at('fd00::1')), of(at('FD00:0:0::1'))], 1, 0],
    [
      'an entry that repeats itself is one',
      [of(endpoint({ addresses: ['10.0.0.1', '10.0.0.1'] }))],
      0,
      0,
    ],
    ['names of type FQDN', [of(at('db.example')), of(at('db.example'))], 1, 0],
  ];
  test.each(cases)('%s', (_, slices, equal, conflicting) => {
    const totals = createDuplicateTotals();
    setDuplicates(totals, 'a/x', slices);
    expect(totals).toMatchObject({ equal, conflicting });
  });
});

test('a Service replaces what it added, and adds nothing when its slices are gone', () => {
  const totals = createDuplicateTotals();
  setDuplicates(totals, 'a/x', [of(at('10.0.0.1')), of(at('10.0.0.1'))]);
  setDuplicates(totals, 'a/y', [of(at('10.0.0.1')), of(at('10.0.0.1', { ready: false }))]);
  setDuplicates(totals, 'a/z', [of(at('10.0.0.1'))]);
  expect(totals).toMatchObject({ equal: 1, conflicting: 1 });
  expect([...totals.byService.keys()]).toEqual(['a/x', 'a/y']);
  setDuplicates(totals, 'a/y', [of(at('10.0.0.1')), of(at('10.0.0.1'))]);
  expect(totals).toMatchObject({ equal: 2, conflicting: 0 });
  setDuplicates(totals, 'a/x', []);
  setDuplicates(totals, 'a/y', []);
  expect(totals).toEqual({ byService: new Map(), equal: 0, conflicting: 0 });
});
