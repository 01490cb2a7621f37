// A recorded state of random objects: all outputs of Cilium show the same frontends, and the audit
// finds nothing. The scenarios of upstream are read as they are written.

import { join } from 'node:path';

import { expect, test } from 'vitest';

import { readLbList } from '../../src/rules/cilium/lb-list.ts';
import { readBytes } from '../nodes/folder.ts';
import { differentlyRead, walkFolders } from '../nodes/walk.ts';
import { readScenario } from './scenarios.ts';

const random = join(import.meta.dirname, '../nodes/cilium/random');

test('a random state has no finding, and bpftool, maps-dump and cilium-dbg agree on it', () => {
  const state = join(random, 'state-9-2');
  const lists = readBytes(join(state, 'lb-list.json'))?.toString() ?? '';
  expect(readLbList(lists).entries.length).toBeGreaterThan(500);
  expect(differentlyRead(state)).toEqual([]);
  const summary = walkFolders([random], () => undefined);
  expect(summary).toMatchObject({ recordings: 1, wrong: 0, unknown: 0, falseFindings: 0 });
  expect(summary.packets).toBeGreaterThan(50);
});

test('a scenario has flags, commands without comments, and files', () => {
  const text = [
    '#! --enable-service-topology --lb-test-fault-probability=0.0 --bpf-lb-mode=dsr',
    '# Adds a Service',
    'k8s/add service.yaml',
    '',
    '-- service.yaml --',
    'kind: Service',
    '',
  ].join('\n');
  expect(readScenario(text)).toEqual({
    flags: {
      'bpf-lb-maglev-table-size': '1021',
      'enable-service-topology': true,
      'bpf-lb-mode': 'dsr',
    },
    lines: ['k8s/add service.yaml'],
    files: new Map([['service.yaml', 'kind: Service\n']]),
  });
});
