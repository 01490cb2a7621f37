// The cut by itself: what is known up to where, and which outputs are blind for how long.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Output } from '../../../src/audit/finding/catalogue.ts';
import type { WatchProgress, InputState } from '../../../src/audit/pending/progress.ts';
import { createWatchProgress, restsOn } from '../../../src/audit/pending/progress.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';

function cutOf(version = '100'): WatchProgress {
  const cut = createWatchProgress();
  for (const resource of resources) {
    cut.setState(resource, 'listing', 0);
    cut.bookmark(resource, version, 5);
    cut.setState(resource, 'synced', 1);
  }
  return cut;
}

const byOutput = (spells: ReturnType<WatchProgress['setState']>): string[] =>
  spells.map(({ output, from, to, missed }) => `${output} ${from}-${to}${missed ? ' missed' : ''}`);

describe('a version is reached', () => {
  test('when every stream that the output depends on has reached it', () => {
    const cut = cutOf();
    cut.observe('pods', '205', 5);
    for (const output of ['endpoints', 'endpointslices', 'mirrored'] as const) {
      expect(cut.hasReached(output, '100', 0)).toBe(true);
      expect(cut.hasReached(output, '205', 0)).toBe(false);
    }
    cut.bookmark('services', '205', 5);
    cut.observe('endpoints', '206', 5);
    expect(cut.hasReached('endpoints', '205', 0)).toBe(true);
    expect(cut.hasReached('endpointslices', '205', 0)).toBe(false);
  });

  test('by comparing versions as numbers of any length', () => {
    const cut = cutOf('99');
    cut.observe('pods', '9223372036854775807', 5);
    cut.observe('pods', '9223372036854775806', 5);
    expect(cut.inputs.get('pods')?.version).toBe('9223372036854775807');
  });

  test('even if an older event or bookmark follows, but not if an older list does', () => {
    const cut = cutOf();
    cut.observe('pods', '90', 5);
    cut.bookmark('pods', '90', 5);
    expect(cut.inputs.get('pods')?.version).toBe('100');
    cut.setState('pods', 'relisting', 10);
    cut.bookmark('pods', '90', 5);
    expect(cut.inputs.get('pods')?.version).toBe('90');
  });

  test('only if every stream has delivered an object or bookmark since then', () => {
    const cut = cutOf();
    expect(cut.hasReached('endpoints', '100', 5)).toBe(true);
    expect(cut.hasReached('endpoints', '100', 6)).toBe(false);
    for (const resource of resources) cut.bookmark(resource, '100', 7);
    expect(cut.hasReached('endpoints', '100', 6)).toBe(true);
  });

  test('without resources that were never watched', () => {
    const cut = createWatchProgress();
    const others = resources.filter((resource) => resource !== 'endpoints');
    cut.setState('endpoints', 'off', 0);
    for (const resource of others) cut.setState(resource, 'listing', 0);
    for (const resource of others) cut.bookmark(resource, '300', 5);
    for (const resource of others) cut.setState(resource, 'synced', 5);
    expect(cut.hasReached('mirrored', '300', 0)).toBe(true);
    expect(cut.isBlind('endpoints')).toBe(false);
    expect(cut.unseenFor(0, 1000).size).toBe(0);
  });

  test('a resource that is no longer permitted makes its outputs blind', () => {
    const cut = cutOf();
    cut.setState('endpoints', 'off', 10);
    expect([cut.isBlind('endpoints'), cut.isBlind('mirrored')]).toEqual([true, true]);
    expect(cut.isBlind('endpointslices')).toBe(false);
    expect([...cut.unseenFor(5, 15)]).toEqual(['endpoints']);
  });

  test('without streams no output is blind', () => {
    const cut = createWatchProgress();
    expect(cut.isBlind('endpoints')).toBe(false);
  });
});

describe('an object is late', () => {
  test('just after a newer version, if no version was shown for a second before', () => {
    const cut = cutOf();
    cut.observe('pods', '120', 10);
    cut.observe('pods', '130', 10.9);
    cut.observe('pods', '140', 12);
    expect(cut.observe('endpoints', '139', 12.1)).toBe(true);
    expect(cut.observe('endpoints', '141', 12.1)).toBe(false);
  });

  test('a second after a stream or a read has shown a newer version', () => {
    const cut = cutOf();
    cut.observe('services', '115', 9.5);
    expect(cut.observe('pods', '120', 10)).toBe(false);
    expect(cut.observe('endpoints', '116', 10.5)).toBe(false);
    expect(cut.observe('endpoints', '111', 11)).toBe(true);
    expect(cut.observe('endpoints', '121', 11)).toBe(false);
    cut.bookmark('nodes', '130', 20);
    expect(cut.observe('pods', '129', 21)).toBe(true);
    cut.shown('138', 29.5);
    cut.shown('140', 30);
    expect(cut.observe('pods', '139', 30.9)).toBe(false);
    expect(cut.observe('pods', '140', 31)).toBe(true);
  });

  test.each([
    ['within a quarter of a second count as shown at once', 10.24, true],
    ['a quarter of a second apart do not', 10.25, false],
  ])('versions %s', (_, at, isLate) => {
    const cut = cutOf();
    cut.observe('services', '110', 10);
    cut.observe('services', '120', at);
    expect(cut.observe('pods', '115', 11)).toBe(isLate);
  });

  test('but not after a list with older versions', () => {
    const cut = cutOf();
    cut.observe('pods', '120', 10);
    for (const resource of resources) cut.setState(resource, 'relisting', 20);
    for (const resource of resources) cut.bookmark(resource, '60', 21);
    for (const resource of resources) cut.setState(resource, 'synced', 21);
    expect(cut.observe('pods', '61', 30)).toBe(false);
  });
});

describe('blindness', () => {
  test('lasts from the first lost stream to the last reconnected one', () => {
    const cut = cutOf();
    expect(cut.setState('pods', 'stale', 10)).toEqual([]);
    expect([cut.isBlind('endpoints'), cut.isBlind('mirrored')]).toEqual([true, false]);
    expect(cut.setState('services', 'stale', 12)).toEqual([]);
    expect(cut.isBlind('mirrored')).toBe(true);
    expect(byOutput(cut.setState('pods', 'synced', 20))).toEqual([]);
    expect(byOutput(cut.setState('services', 'synced', 25))).toEqual([
      'endpoints 10-25',
      'endpointslices 10-25',
      'mirrored 12-25',
      'input 10-25',
      'node 12-25',
    ]);
    expect(cut.isBlind('endpoints')).toBe(false);
  });

  test('states that changes were missed', () => {
    const cut = cutOf();
    cut.setState('nodes', 'stale', 10);
    cut.setState('nodes', 'relisting', 11);
    expect(byOutput(cut.setState('nodes', 'synced', 12))).toEqual([
      'endpointslices 10-12 missed',
      'input 10-12 missed',
      'node 10-12 missed',
    ]);
  });

  test('is reported after some seconds, counted from its start', () => {
    const cut = cutOf();
    cut.setState('pods', 'stale', 10);
    cut.setState('pods', 'relisting', 13);
    expect([...cut.unseenFor(5, 14.9)]).toEqual([]);
    expect([...cut.unseenFor(5, 15)]).toEqual(['pods']);
    cut.setState('pods', 'synced', 16);
    expect([...cut.unseenFor(0, 100)]).toEqual([]);
  });

  test('exists exactly while a stream that the output depends on is not synced', () => {
    const turns = fc.array(
      fc.tuple(
        fc.constantFrom(...resources),
        fc.constantFrom<InputState>('synced', 'stale', 'relisting', 'off'),
      ),
    );
    fc.assert(
      fc.property(turns, (all) => {
        const cut = cutOf();
        const states = new Map<Resource, InputState>(resources.map((one) => [one, 'synced']));
        const since = new Map<Output, number>();
        for (const [index, [resource, state]] of all.entries()) {
          const spells = cut.setState(resource, state, index + 10);
          states.set(resource, state);
          for (const output of Object.keys(restsOn) as Output[]) {
            const blind = !restsOn[output].every((one) => states.get(one) === 'synced');
            expect(cut.isBlind(output)).toBe(blind);
            const over = spells.find((spell) => spell.output === output);
            expect(over?.from).toBe(blind ? undefined : since.get(output));
            if (!blind) since.delete(output);
            else if (!since.has(output)) since.set(output, index + 10);
          }
        }
      }),
    );
  });
});
