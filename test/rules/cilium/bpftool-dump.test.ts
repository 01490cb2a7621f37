import { describe, expect, test } from 'vitest';

import { readBpftoolBatch, readBpftoolDump } from '../../../src/rules/cilium/bpftool-dump.ts';

const maps = ['services_v2', 'backends_v3', 'reverse_nat', 'source_range', 'maglev'];

/** The maps of IPv4 without entries. */
const emptyMaps: Readonly<Record<string, unknown>> = {
  ...Object.fromEntries(maps.map((name) => [`cilium_lb4_${name}`, []])),
  cilium_lb_affinity_match: [],
};

const bytes = (text: string): string[] =>
  (text.match(/[0-9a-f]{2}/g) ?? []).map((byte) => `0x${byte}`);

/** An entry as bpftool prints it. */
const entry = (key: string, value: string) => ({ key: bytes(key), value: bytes(value) });

const read = (maps: Record<string, unknown>) =>
  readBpftoolDump(JSON.stringify({ ...emptyMaps, ...maps }));

test('a frontend, its slot, its backend and its reverse NAT are read', () => {
  const { entries, families } = read({
    cilium_lb4_services_v2: [
      entry('0a600001 0050 0000 06 00 0000', '302a0002 0300 0104 5000 0100'),
      entry('0a600001 0050 0100 06 01 0000', '07000000 0000 0104 0040 0000'),
    ],
    cilium_lb4_backends_v3: [entry('07000000', '0af40001 1f90 06 00 0200 00 00')],
    cilium_lb4_reverse_nat: [entry('0104', '0a600001 0050')],
  });
  const place = { family: 'ip', address: '10.96.0.1', port: 80, protocol: 'tcp' };
  expect(families).toEqual(['IPv4']);
  expect(entries).toEqual([
    {
      ...{ ...place, kind: 'service', scope: 0, id: 260, flags: 0x50 },
      ...{ word: 2 * 2 ** 24 + 10_800, count: 3, quarantined: 1 },
    },
    { kind: 'slots', frontend: '10.96.0.1:80/tcp/i', slots: [1, 7] },
    { ...place, kind: 'backend', id: 7, address: '10.244.0.1', port: 8080, cluster: 2 },
    { kind: 'reverse nat', family: 'ip', id: 260, address: '10.96.0.1', port: 80 },
  ]);
});

test('a source range, an affinity match and a Maglev table are read', () => {
  const { entries } = read({
    cilium_lb4_source_range: [entry('38000000 0104 0000 c6336400', '00')],
    cilium_lb_affinity_match: [entry('07000000 0104 0000', '00')],
    cilium_lb4_maglev: [entry('0104', '35000000')],
    'cilium_maglev_inner:53': [entry('00000000', '07000000 08000000 07000000')],
  });
  const range = { family: 'IPv4', low: 0xc6336400, high: 0xc63364ff };
  const places = new Map([
    [7, 2],
    [8, 1],
  ]);
  expect(entries).toEqual([
    { kind: 'source range', id: 260, range },
    { kind: 'maglev', family: 'ip', id: 260, places },
    { kind: 'affinity match', id: 260, backend: 7 },
  ]);
});

test.each([
  ['no JSON', 'SVC:', /expected a JSON object/],
  ['a list', '[]', /expected a JSON object/],
  ['no map of Cilium', '{"cilium_ct4_global": []}', /expected the maps/],
  ['a map that is missing', '{"cilium_lb4_services_v2": []}', /cilium_lb4_backends_v3/],
])('%s is refused', (_, text, message) => {
  expect(() => readBpftoolDump(text)).toThrow(message);
});

test('bytes may be on lines of their own', () => {
  const services = [entry('0a600001 0050 0000 06 00 0000', '00000000 0000 0001 0000 0000')];
  const all = { ...emptyMaps, cilium_lb4_services_v2: services };
  const dense = readBpftoolDump(JSON.stringify(all));
  expect(dense.entries).toHaveLength(1);
  expect(readBpftoolDump(JSON.stringify(all, null, 2))).toEqual(dense);
});

test('the largest Maglev table is read', () => {
  // The size limit of Cilium: 131071 places of four bytes.
  const table = { key: bytes('00000000'), value: bytes('07000000'.repeat(131_071)) };
  const { entries } = read({
    cilium_lb4_maglev: [entry('0104', '35000000')],
    'cilium_maglev_inner:53': [table],
  });
  const places = new Map([[7, 131_071]]);
  expect(entries).toEqual([{ kind: 'maglev', family: 'ip', id: 260, places }]);
});

test.each([
  ['another layout', entry('0a600001 0050', '00'), /cilium_lb4_services_v2 has a layout/],
  ['a value that is no byte', { key: ['0x1ff'], value: [] }, /expected bytes/],
  ['a value that is no integer', { key: [1.5], value: [] }, /expected bytes/],
  ['an entry that is null', null, /expected keys and values/],
  ['an entry without bytes', { key: 'x', value: [] }, /expected keys and values/],
  [
    'a protocol that is not known',
    entry('0a600001 0050 0000 63 00 0000', '00000000 0000 0000 0000 0000'),
    /a protocol is not known/,
  ],
  [
    'a frontend for all protocols',
    entry('0a600001 0050 0000 00 00 0000', '00000000 0000 0000 0000 0000'),
    /before 1\.17.*10\.96\.0\.1:80\/any/,
  ],
])('%s is refused', (_, services, message) => {
  expect(() => read({ cilium_lb4_services_v2: [services] })).toThrow(message);
});

describe('the output of a batch', () => {
  const answer = (name: string, output: unknown) => ({
    command: ['map', 'dump', 'pinned', `/sys/fs/bpf/tc/globals/${name}`],
    output,
  });
  const required = ['services_v2', 'backends_v3', 'reverse_nat'].map((name) =>
    answer(`cilium_lb4_${name}`, []),
  );
  const denied = { error: 'Operation not permitted' };
  /** The required maps, with a frontend that has these flags. */
  const serving = (flags: string) => [
    answer('cilium_lb4_services_v2', [
      entry('0a600001 0050 0000 06 00 0000', `00000000 0000 0104 ${flags} 0000`),
    ]),
    ...required.slice(1),
  ];
  const batch = (...more: object[]) => readBpftoolBatch(JSON.stringify([...required, ...more]));

  test('may lack maps that Cilium has only with some flags', () => {
    expect(batch()).toEqual({ entries: [], families: ['IPv4'] });
  });

  test('has no inner tables of Maglev, which are not read', () => {
    const { entries } = batch(answer('cilium_lb4_maglev', [entry('0104', '35000000')]));
    expect(entries).toEqual([{ kind: 'maglev', family: 'ip', id: 260, places: null }]);
  });

  test('an entry that is gone while bpftool reads is left out', () => {
    const gone = { key: bytes('0104'), value: { error: 'No such file or directory' } };
    const kept = entry('0105', '0a600001 0050');
    const { entries } = batch(answer('cilium_lb4_reverse_nat', [gone, kept]));
    expect(entries).toMatchObject([{ kind: 'reverse nat', id: 261 }]);
  });

  test.each([
    ['a map that cannot be opened', [answer('cilium_lb4_services_v2', { error: 'no' })], /: no/],
    ['no backends', [answer('cilium_lb4_services_v2', [])], /cilium_lb4_backends_v3/],
    [
      'an entry that cannot be read',
      [...required, answer('cilium_lb4_backends_v3', [{ key: bytes('07000000'), value: denied }])],
      /entries of cilium_lb4_backends_v3: Operation not permitted/,
    ],
    ['no source ranges, though a frontend checks them', serving('8000'), /cilium_lb4_source_range/],
    ['no affinity, though a frontend has it', serving('1000'), /cilium_lb_affinity_match/],
    ['an object', {}, /expected the output of bpftool/],
    ['a list of texts', ['x'], /expected the output of bpftool/],
  ])('%s is refused', (_, value, message) => {
    expect(() => readBpftoolBatch(JSON.stringify(value))).toThrow(message);
  });
});
