// The workflow that publishes a release.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

test('npm publishes a path that begins with a dot', () => {
  const path = join(import.meta.dirname, '../.github/workflows/release.yml');
  const commands = readFileSync(path, 'utf8').match(/npm publish .*/g) ?? [];
  expect(commands).toHaveLength(1);
  // Without the dot, FOLDER/FILE is the name of a repository of GitHub.
  for (const command of commands) expect(command).toMatch(/ "\.\/[^"]+\.tgz"$/);
});
