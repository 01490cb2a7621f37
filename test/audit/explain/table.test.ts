// The table of a Service: every pod and every address has a row, rows that differ come first, and
// each row agrees with the explanation of its pod.

import { describe, expect, test } from 'vitest';

import { explainPair } from '../../../src/audit/explain/pod-in-service.ts';
import type { ServiceTable } from '../../../src/audit/explain/service-table.ts';
import { serviceTable } from '../../../src/audit/explain/service-table.ts';
import type { AnyObject } from '../../../src/model/objects.ts';
import {
  address,
  auditService,
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

function tableOf(objects: AnyObject[], from = 0, most = 100) {
  const { context, serviceAuditor } = auditService([node(), ...objects]);
  serviceAuditor.settle.advance(1000);
  const audited = serviceAuditor.audited.get('shop/web');
  if (audited === undefined) throw new Error('Nothing audited');
  return { table: serviceTable(context, audited, from, most), context, audited };
}

const addressesOf = ({ rows }: ServiceTable): string[] => rows.map((row) => row.address);

describe('rows', () => {
  test('a conform pod has one row without differences', () => {
    const { table } = tableOf([service(), pod(), endpoints(), slice()]);
    expect([table.total, table.differing]).toEqual([1, 0]);
    const [row] = table.rows;
    expect(row).toMatchObject({
      pod: 'shop/web-1',
      selected: true,
      expected: { endpoints: 'ready', slices: 'ready' },
      why: null,
      items: [],
    });
    expect(row?.entries.map(({ state }) => state)).toEqual(['ready', 'ready']);
  });

  test('rows that differ come first, with their differences', () => {
    const pods = [pod({ name: 'a', ips: ['10.0.0.1'] }), pod({ name: 'b', ips: ['10.0.0.2'] })];
    const listed = endpoints({ subsets: [] });
    const sliced = slice({
      endpoints: [endpoint({ addresses: ['10.0.0.9'], target: null })],
    });
    const { table } = tableOf([service(), ...pods, listed, sliced]);
    expect(addressesOf(table)).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.9']);
    expect(table.differing).toBe(3);
    const stray = table.rows.at(-1);
    expect(stray).toMatchObject({
      pod: null,
      selected: false,
      expected: { endpoints: 'absent', slices: 'absent' },
    });
    expect(stray?.items.map(({ difference }) => difference.code)).toContain(
      'slice-endpoint-unexpected',
    );
  });

  test('a pod without an address has a row with the reason', () => {
    const { table } = tableOf([service(), pod({ ips: [] }), endpoints({ subsets: [] })]);
    expect(table.rows[0]).toMatchObject({
      address: '',
      expected: { endpoints: 'absent', slices: 'absent' },
    });
    expect(table.rows[0]?.why).toContain('no address');
  });

  test('Endpoints are expected to list one of two addresses', () => {
    const ips = ['10.0.0.1', 'fd00::1'];
    const dual = service({ ipFamilies: ['IPv4', 'IPv6'] });
    const { table } = tableOf([dual, pod({ ips }), endpoints({ subsets: [] })]);
    const expected = table.rows.map((row) => [row.address, row.expected.endpoints]);
    expect(expected).toEqual([
      ['10.0.0.1', 'ready'],
      ['fd00::1', null],
    ]);
  });

  test('a Service without a selector shows its entries and expects none', () => {
    const listed = endpoints({ subsets: [subset([address({ ip: '10.9.9.9' })])] });
    const { table } = tableOf([service({ selector: null }), listed, foreign()]);
    expect(addressesOf(table)).toContain('10.9.9.9');
    expect(table.rows[0]?.expected).toEqual({ endpoints: null, slices: null });
    expect(table.slices.map(({ role }) => role)).toEqual(['foreign']);
  });

  test('a page contains at most the rows asked for', () => {
    const pods = times(30, (index) => pod({ name: `p-${index}`, ips: [`10.0.1.${index}`] }));
    const { table } = tableOf([service(), ...pods, endpoints({ subsets: [] })], 20, 20);
    expect([table.rows.length, table.total, table.differing]).toEqual([10, 30, 30]);
  });
});

test('after the last row comes the last page', () => {
  const pods = times(5, (index) => pod({ name: `web-${index}`, ips: [`10.0.0.${index}`] }));
  const { table } = tableOf([service(), ...pods, endpoints(), slice()], 900, 2);
  expect([table.from, table.total]).toEqual([4, 5]);
  expect(table.rows).toHaveLength(1);
});

test('each row expects the states of the explanation of its pod', () => {
  const pods = [
    pod({ name: 'ready', ips: ['10.0.0.1'] }),
    pod({ name: 'slow', ips: ['10.0.0.2'], ready: false }),
    pod({ name: 'done', ips: ['10.0.0.3'], terminal: true }),
    pod({ name: 'going', ips: ['10.0.0.4'], deleting: true }),
  ];
  const { table, context, audited } = tableOf([service(), ...pods, endpoints(), slice()]);
  for (const one of pods) {
    const row = table.rows.find(({ pod: key }) => key === one.key);
    const pair = explainPair(context, audited, one);
    const wanted = (place: string) => pair?.places.find((at) => at.place === place)?.expected;
    expect(row?.expected).toEqual({ endpoints: wanted('endpoints'), slices: wanted('IPv4') });
    expect(row?.why).toBe(pair?.decides?.reason.text ?? null);
  }
});
