// The table of a Service: every pod and every address has its row, what differs comes first, and
// rows say the same as the audit and the explanation of each pair.

import { describe, expect, test } from 'vitest';

import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import type { ServiceTable } from '../../../src/audit/explain/table.ts';
import { serviceTable } from '../../../src/audit/explain/table.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import {
  address,
  endpoint,
  endpoints,
  foreign,
  node,
  pod,
  service,
  slice,
  subset,
  times,
} from '../../build.ts';
import { judged } from '../judge.ts';

function made(objects: AnyObject[], from = 0, most = 100) {
  const { context, serviceAuditor } = judged([node(), ...objects]);
  serviceAuditor.settle.advance(1000);
  const of = serviceAuditor.audited.get('shop/web');
  if (of === undefined) throw new Error('Nothing audited');
  return { matrix: serviceTable(context, of, from, most), context, of };
}

const addressesOf = ({ rows }: ServiceTable): string[] => rows.map((row) => row.address);

describe('rows', () => {
  test('a pod that is as it must be', () => {
    const { matrix } = made([service(), pod(), endpoints(), slice()]);
    expect([matrix.total, matrix.differing]).toEqual([1, 0]);
    const [row] = matrix.rows;
    expect(row).toMatchObject({
      pod: 'shop/web-1',
      selected: true,
      expected: { endpoints: 'ready', slices: 'ready' },
      why: null,
      items: [],
    });
    expect(row?.entries.map(({ state: standing }) => standing)).toEqual(['ready', 'ready']);
  });

  test('what differs comes first, with what is held against it', () => {
    const pods = [pod({ name: 'a', ips: ['10.0.0.1'] }), pod({ name: 'b', ips: ['10.0.0.2'] })];
    const listed = endpoints({ subsets: [] });
    const sliced = slice({
      endpoints: [endpoint({ addresses: ['10.0.0.9'], target: null })],
    });
    const { matrix } = made([service(), ...pods, listed, sliced]);
    expect(addressesOf(matrix)).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.9']);
    expect(matrix.differing).toBe(3);
    const stray = matrix.rows.at(-1);
    expect(stray).toMatchObject({
      pod: null,
      selected: false,
      expected: { endpoints: 'absent', slices: 'absent' },
    });
    expect(stray?.items.map(({ difference }) => difference.code)).toContain(
      'slice-endpoint-unexpected',
    );
  });

  test('a pod without an address, and why nothing is expected of it', () => {
    const { matrix } = made([service(), pod({ ips: [] }), endpoints({ subsets: [] })]);
    expect(matrix.rows[0]).toMatchObject({
      address: '',
      expected: { endpoints: 'absent', slices: 'absent' },
    });
    expect(matrix.rows[0]?.why).toContain('no address');
  });

  test('of two addresses, Endpoints list one', () => {
    const ips = ['10.0.0.1', 'fd00::1'];
    const dual = service({ ipFamilies: ['IPv4', 'IPv6'] });
    const { matrix } = made([dual, pod({ ips }), endpoints({ subsets: [] })]);
    const expected = matrix.rows.map((row) => [row.address, row.expected.endpoints]);
    expect(expected).toEqual([
      ['10.0.0.1', 'ready'],
      ['fd00::1', null],
    ]);
  });

  test('without a selector nothing is expected, and what is listed is shown', () => {
    const listed = endpoints({ subsets: [subset([address({ ip: '10.9.9.9' })])] });
    const { matrix } = made([service({ selector: null }), listed, foreign()]);
    expect(addressesOf(matrix)).toContain('10.9.9.9');
    expect(matrix.rows[0]?.expected).toEqual({ endpoints: null, slices: null });
    expect(matrix.slices.map(({ role }) => role)).toEqual(['foreign']);
  });

  test('come a page at a time', () => {
    const pods = times(30, (index) => pod({ name: `p-${index}`, ips: [`10.0.1.${index}`] }));
    const { matrix } = made([service(), ...pods, endpoints({ subsets: [] })], 20, 20);
    expect([matrix.rows.length, matrix.total, matrix.differing]).toEqual([10, 30, 30]);
  });
});

test('each row expects what the explanation of the pair does', () => {
  const pods = [
    pod({ name: 'ready', ips: ['10.0.0.1'] }),
    pod({ name: 'slow', ips: ['10.0.0.2'], ready: false }),
    pod({ name: 'done', ips: ['10.0.0.3'], terminal: true }),
    pod({ name: 'going', ips: ['10.0.0.4'], deleting: true }),
  ];
  const { matrix, context, of } = made([service(), ...pods, endpoints(), slice()]);
  for (const one of pods) {
    const row = matrix.rows.find(({ pod: key }) => key === one.key);
    const pair = explainPair(context, of, one);
    const wanted = (place: string) => pair?.places.find((at) => at.place === place)?.expected;
    expect(row?.expected).toEqual({ endpoints: wanted('endpoints'), slices: wanted('IPv4') });
    expect(row?.why).toBe(pair?.decides?.text ?? null);
  }
});
