// Tables as CSV (RFC 4180) for spreadsheets, with a header.

/** Spreadsheets take a text that begins so for a formula. Names come from the cluster. */
const formula = /^[=+\-@\t\r]/;

type CsvValue = string | number | null;

function formatCell(value: CsvValue): string {
  const text = String(value ?? '');
  const safe = typeof value === 'string' && formula.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Renders the header and one line for each row, in pieces. */
export function* formatCsv<Row>(
  columns: Readonly<Record<string, (row: Row) => CsvValue>>,
  rows: Iterable<Row>,
): Generator<string, void> {
  const line = (values: readonly CsvValue[]): string => `${values.map(formatCell).join(',')}\r\n`;
  yield line(Object.keys(columns));
  const valuesOf = Object.values(columns);
  for (const row of rows) yield line(valuesOf.map((valueOf) => valueOf(row)));
}
