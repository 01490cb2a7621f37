// Every recorded and every broken node.

import { expect, test } from 'vitest';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { checkAudit, isTrue, walkFolders } from './walk.ts';
import { foldersBelow, readFolder } from './folder.ts';

test('walks agree with real kernels, and findings with the faults of nodes', () => {
  const problems: string[] = [];
  const codes = new Set<string>();
  const summary = walkFolders([import.meta.dirname], (line) => problems.push(line), codes);
  expect(problems).toEqual([]);
  expect(isTrue(summary)).toBe(true);
  expect(summary.packets).toBeGreaterThan(10_000);
  const ofNodes = Object.entries(catalogue).filter(([, { output }]) => output === 'node');
  // Every finding about nodes has a broken node that shows it, except findings about peers.
  const unseen = ofNodes.map(([code]) => code).filter((code) => !codes.has(code));
  expect(unseen).toEqual(['node-unlike-others']);
});

test('findings are the same if only the rules show the configuration of kube-proxy', () => {
  const problems: string[] = [];
  const folders = foldersBelow(import.meta.dirname).map(readFolder);
  for (const folder of folders) {
    checkAudit(folder, (line) => problems.push(line), new Set(), 'by its rules');
  }
  expect(problems).toEqual([]);
  expect(folders.length).toBeGreaterThan(100);
});
