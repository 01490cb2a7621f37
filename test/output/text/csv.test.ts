import { expect, test } from 'vitest';

import { formatCsv } from '../../../src/output/text/csv.ts';

const columns = {
  name: ({ name }: { name: string }) => name,
  count: ({ count }: { count: number | null }) => count,
};

test('a table has a header, and one line for each row', () => {
  const rows = [
    { name: 'web', count: 1 },
    { name: '', count: null },
  ];
  expect([...formatCsv(columns, rows)].join('')).toBe('name,count\r\nweb,1\r\n,\r\n');
});

test.each([
  ['a,b', '"a,b"'],
  ['say "x"', '"say ""x"""'],
  ['a\nb', '"a\nb"'],
  ['=1+1', "'=1+1"],
  ['+1', "'+1"],
  ['-1', "'-1"],
  ['@SUM(A1)', "'@SUM(A1)"],
  ['\t=1', "'\t=1"],
  ['=HYPERLINK("http://x")', `"'=HYPERLINK(""http://x"")"`],
])('%j is the cell %s', (name, cell) => {
  expect([...formatCsv(columns, [{ name, count: -1 }])][1]).toBe(`${cell},-1\r\n`);
});
