// The maps of Cilium that are pinned in a folder.

import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { pinnedMaps } from '../../src/agent/cilium-maps.ts';

function folderWith(...names: string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'maps-'));
  for (const name of names) writeFileSync(join(folder, name), '');
  return folder;
}

test('known maps are read in order, others are not', () => {
  const folder = folderWith(
    'cilium_lb4_services_v2',
    'cilium_lb4_backends_v3',
    'cilium_ct4_global',
  );
  expect(pinnedMaps(folder)).toEqual({
    commands: ['backends_v3', 'services_v2']
      .map((name) => `map dump pinned ${folder}/cilium_lb4_${name}\n`)
      .join(''),
    problem: null,
    failure: null,
  });
});

test('a node without the folder, or without frontends, has no Cilium', () => {
  for (const folder of [join(folderWith(), 'none'), folderWith('cilium_lb4_backends_v3')]) {
    expect(pinnedMaps(folder)).toEqual({ commands: '', problem: null, failure: null });
  }
});

test('a folder that cannot be read has a reason', () => {
  const file = join(folderWith('file'), 'file');
  expect(pinnedMaps(file)).toMatchObject({ commands: '', failure: /ENOTDIR/ });
});

test.each(['cilium_lb4_services_v3', 'cilium_lb6_backends_v4'])('%s is not known', (name) => {
  const folder = folderWith('cilium_lb4_services_v2', name);
  mkdirSync(join(folder, 'folder'));
  expect(pinnedMaps(folder)).toMatchObject({ commands: '', problem: new RegExp(name) });
});
