// Every recorded and every broken node.

import { dirname, relative } from 'node:path';

import { describe, expect, test } from 'vitest';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { addCounts } from '../../src/model/collections.ts';
import { checkAudit, emptySummary, isTrue, walkFolders } from './walk.ts';
import { ciliumFoldersBelow, type Folder, foldersBelow } from './folder.ts';

const here = import.meta.dirname;

/** What the audits find if only the rules show the configuration of kube-proxy. */
const byRules = { problems: [] as string[], folders: new Set<string>() };

describe('walks agree with real kernels, and findings with the faults of nodes', () => {
  const nodes = [...foldersBelow(here), ...ciliumFoldersBelow(here)];
  const groups = Map.groupBy(nodes, (path) => relative(here, dirname(path)));
  const codes = new Set<string>();
  const total = emptySummary();
  const auditByRules = (folder: Folder): void => {
    byRules.folders.add(folder.path);
    checkAudit(folder, (line) => byRules.problems.push(line), new Set(), 'by its rules');
  };

  test.each([...groups])('%s', (_, folders) => {
    const problems: string[] = [];
    const summary = walkFolders(folders, (line) => problems.push(line), codes, auditByRules);
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
  expect(byRules.problems).toEqual([]);
  expect([...byRules.folders].sort()).toEqual(foldersBelow(here).sort());
  expect(byRules.folders.size).toBeGreaterThan(100);
});
