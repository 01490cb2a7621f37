// Moments that people write.

import { execFileSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';

import { expect, test } from 'vitest';

const source = pathToFileURL('src/output/text/date-time.ts').href;

test('a moment without a zone is UTC, whatever the zone of the process', () => {
  const texts = ['2026-11-21T10:56:46Z', '2026-11-21T10:56:46', '2026-11-21T10:56', '2026-11-21'];
  const program = `
    const { parseDateTime } = await import(${JSON.stringify(source)});
    console.log(JSON.stringify(${JSON.stringify(texts)}.map(parseDateTime)));`;
  const env = { ...process.env, TZ: 'Asia/Tokyo' };
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], { env });
  expect(JSON.parse(output.toString())).toEqual([1795258606, 1795258606, 1795258560, null]);
});
