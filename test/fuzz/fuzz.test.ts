// The hostile inputs that showed faults. `npm run -s fuzz` has all of them, and changed inputs.

import { expect, test } from 'vitest';

import { fuzz } from './fuzz.ts';
import { hostileInputs } from './readers.ts';

test.each([
  // Each error of the parser was kept.
  ['dump', 'a YAML list of commas'],
  ['dump', 'braces after a YAML document'],
  // A search began at each line and went on to the end.
  ['rules', 'newlines'],
])('%s of %s needs at most 10 s of CPU time and 512 MiB', async (name, input) => {
  const first = hostileInputs(name).findIndex((one) => one.name === input);
  expect(first).toBeGreaterThanOrEqual(0);
  expect(await fuzz({ name, first, runs: 1, hostile: true })).toMatchObject({ failures: [] });
});

test('an unknown reader is a failure', async () => {
  const { failures } = await fuzz({ name: 'none', first: 0, runs: 1, hostile: false });
  expect(failures).toMatchObject([{ why: 'Error: There is no reader none' }]);
});
