// Every recorded and every broken node.

import { dirname, relative } from 'node:path';

import { describe, expect, test } from 'vitest';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { addCounts } from '../../src/model/collections.ts';
import { checkAudit, emptySummary, isTrue, walkFolders } from './walk.ts';
import { ciliumFoldersBelow, foldersBelow, readFolder } from './folder.ts';

const here = import.meta.dirname;

describe('walks agree with real kernels, and findings with the faults of nodes', () => {
  const nodes = [...foldersBelow(here), ...ciliumFoldersBelow(here)];
  const groups = Map.groupBy(nodes, (path) => relative(here, dirname(path)));
  const codes = new Set<string>();
  const total = emptySummary();

  test.each([...groups])('%s', (_, folders) => {
    const problems: string[] = [];
    const summary = walkFolders(folders, (line) => problems.push(line), codes);
    expect(problems).toEqual([]);
    addCounts(total, summary, 1);
  });

  test('all folders have few unknown packets and every finding, except those about peers', () => {
    expect(isTrue(total)).toBe(true);
    expect(total.packets).toBeGreaterThan(10_000);
    const ofNodes = Object.entries(catalogue).filter(([, { output }]) => output === 'node');
    const unseen = ofNodes.map(([code]) => code).filter((code) => !codes.has(code));
    expect(unseen).toEqual(['node-unlike-others']);
  });
});

test('findings are the same if only the rules show the configuration of kube-proxy', () => {
  const problems: string[] = [];
  const folders = foldersBelow(here).map(readFolder);
  for (const folder of folders) {
    checkAudit(folder, (line) => problems.push(line), new Set(), 'by its rules');
  }
  expect(problems).toEqual([]);
  expect(folders.length).toBeGreaterThan(100);
});
