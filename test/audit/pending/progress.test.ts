// The cut by itself: what is known up to where, and which outputs are blind for how long.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Output } from '../../../src/audit/finding/catalogue.ts';
import type { WatchProgress, InputState } from '../../../src/audit/pending/progress.ts';
import { createWatchProgress, restsOn } from '../../../src/audit/pending/progress.ts';
import type { Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';

function cutOf(version = '100', merged: readonly Resource[] = []): WatchProgress {
  const cut = createWatchProgress(merged);
  for (const resource of resources) {
    cut.setState(resource, 'listing', 0);
    cut.bookmark(resource, version, 5);
    cut.setState(resource, 'synced', 1);
  }
  return cut;
}

const observe = (cut: WatchProgress, resource: Resource, resourceVersion: string, at: number) =>
  cut.observe(resource, { key: 'shop/x', resourceVersion }, at);

const lack = (cut: WatchProgress, version: string, at: number): number =>
  cut.lack('pods', 'shop/x', { version, at, isDeletion: false });

const byOutput = (spells: ReturnType<WatchProgress['setState']>): string[] =>
  spells.flatMap(({ outputs, from, to, missed }) =>
    [...outputs].map((output) => `${output} ${from}-${to}${missed ? ' missed' : ''}`),
  );

describe('a version is reached', () => {
  test('when every stream that the output depends on has reached it', () => {
    const cut = cutOf();
    observe(cut, 'pods', '205', 5);
    for (const output of ['endpoints', 'endpointslices', 'mirrored'] as const) {
      expect(cut.hasReached(output, '100', 0)).toBe(true);
      expect(cut.hasReached(output, '205', 0)).toBe(false);
    }
    cut.bookmark('services', '205', 5);
    observe(cut, 'endpoints', '206', 5);
    expect(cut.hasReached('endpoints', '205', 0)).toBe(true);
    expect(cut.hasReached('endpointslices', '205', 0)).toBe(false);
  });

  test('by a bookmark only, if the resource has a stream per namespace', () => {
    const cut = cutOf('100', ['pods']);
    observe(cut, 'pods', '205', 5);
    observe(cut, 'services', '206', 5);
    expect(cut.inputs.get('pods')?.version).toBe('100');
    expect(cut.inputs.get('services')?.version).toBe('206');
    expect(cut.newest()).toBe('206');
    cut.bookmark('pods', '204', 5);
    expect(cut.inputs.get('pods')?.version).toBe('204');
  });

  test('by comparing versions as numbers of any length', () => {
    const cut = cutOf('99');
    observe(cut, 'pods', '9223372036854775807', 5);
    observe(cut, 'pods', '9223372036854775806', 5);
    expect(cut.inputs.get('pods')?.version).toBe('9223372036854775807');
  });

  test('even if an older event or bookmark follows, but not if an older list does', () => {
    const cut = cutOf();
    observe(cut, 'pods', '90', 5);
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

  test.each(resources)('only if %s have delivered it, and since then', (late) => {
    const output = (['endpoints', 'endpointslices'] as const).find((it) =>
      restsOn[it].includes(late),
    );
    if (output === undefined) throw new Error(`No output rests on ${late}`);
    const cut = cutOf();
    for (const other of resources) if (other !== late) cut.bookmark(other, '205', 20);
    expect(cut.hasReached(output, '205', -Infinity)).toBe(false);
    expect(cut.hasReached(output, '100', 20)).toBe(false);
    cut.bookmark(late, '205', 20);
    expect(cut.hasReached(output, '205', 20)).toBe(true);
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

describe('an object comes after a gap', () => {
  test('if a read has shown an earlier version that the cache lacks', () => {
    const cut = cutOf();
    expect(lack(cut, '110', 6)).toBe(6);
    expect(lack(cut, '112', 8)).toBe(6);
    expect(observe(cut, 'endpoints', '112', 8.1)).toBeNull();
    expect(observe(cut, 'pods', '112', 8.2)).toBe('gap');
    expect(observe(cut, 'pods', '113', 8.3)).toBeNull();
  });

  test('but not if the stream delivers what the read has shown, or a list follows', () => {
    const cut = cutOf();
    lack(cut, '110', 6);
    expect(observe(cut, 'pods', '110', 6.1)).toBeNull();
    expect(observe(cut, 'pods', '112', 6.2)).toBeNull();
    lack(cut, '114', 6);
    cut.setState('pods', 'relisting', 7);
    cut.bookmark('pods', '115', 7);
    expect(observe(cut, 'pods', '116', 7.1)).toBeNull();
  });
});

describe('an object is late', () => {
  test('just after a newer version, if no version was shown for a second before', () => {
    const cut = cutOf();
    observe(cut, 'pods', '120', 10);
    observe(cut, 'pods', '130', 10.9);
    observe(cut, 'pods', '140', 12);
    expect(observe(cut, 'endpoints', '139', 12.1)).toBe('late');
    expect(observe(cut, 'endpoints', '141', 12.1)).toBeNull();
  });

  test('a second after a stream or a read has shown a newer version', () => {
    const cut = cutOf();
    observe(cut, 'services', '115', 9.5);
    expect(observe(cut, 'pods', '120', 10)).toBeNull();
    expect(observe(cut, 'endpoints', '116', 10.4)).toBeNull();
    expect(observe(cut, 'endpoints', '111', 11)).toBe('late');
    expect(observe(cut, 'endpoints', '121', 11)).toBeNull();
    cut.bookmark('nodes', '130', 20);
    expect(observe(cut, 'pods', '129', 21)).toBe('late');
    cut.shown('138', 29.5);
    cut.shown('140', 30);
    expect(observe(cut, 'pods', '139', 30.4)).toBeNull();
    expect(observe(cut, 'pods', '140', 31)).toBe('late');
  });

  test('if a bookmark of its stream came first, but not in a list', () => {
    const cut = cutOf();
    observe(cut, 'services', '119', 9.7);
    cut.bookmark('pods', '120', 10);
    expect(observe(cut, 'pods', '120', 10.1)).toBe('late');
    expect(observe(cut, 'endpoints', '120', 10.1)).toBeNull();
    expect(observe(cut, 'pods', '121', 10.1)).toBeNull();
    cut.setState('pods', 'relisting', 10.2);
    expect(observe(cut, 'pods', '120', 10.3)).toBeNull();
  });

  test.each([
    ['within a quarter of a second count as shown at once', 10.24, true],
    ['a quarter of a second apart do not', 10.25, false],
  ])('versions %s', (_, at, isLate) => {
    const cut = cutOf();
    observe(cut, 'services', '110', 10);
    observe(cut, 'services', '120', at);
    observe(cut, 'services', '130', 10.6);
    expect(observe(cut, 'pods', '125', 11.1)).toBe(isLate ? 'late' : null);
  });

  test('also if only its own stream has shown an older version within the second', () => {
    const cut = cutOf();
    observe(cut, 'pods', '110', 10);
    observe(cut, 'endpoints', '120', 11.2);
    observe(cut, 'pods', '130', 11.6);
    expect(observe(cut, 'services', '125', 11.7)).toBeNull();
    expect(observe(cut, 'endpoints', '125', 11.7)).toBe('late');
  });

  test('if it can be a second old, by the last version that was shown before it', () => {
    const cut = cutOf();
    observe(cut, 'services', '110', 10);
    observe(cut, 'services', '120', 10.6);
    expect(observe(cut, 'pods', '115', 10.9)).toBeNull();
    expect(observe(cut, 'endpoints', '116', 11.1)).toBe('late');
  });

  test('also if a bookmark of another stream has shown the same version within the second', () => {
    const cut = cutOf();
    observe(cut, 'services', '110', 10);
    cut.bookmark('nodes', '120', 11.5);
    observe(cut, 'pods', '130', 11.9);
    expect(observe(cut, 'endpoints', '120', 12.1)).toBe('late');
  });

  test('also after another resource was listed', () => {
    const cut = cutOf();
    observe(cut, 'pods', '120', 10);
    cut.setState('nodes', 'relisting', 12);
    cut.bookmark('nodes', '121', 12);
    cut.setState('nodes', 'synced', 12);
    expect(observe(cut, 'endpoints', '119', 12.1)).toBe('late');
  });

  test.each([
    ['of all resources', resources],
    ['of all that can still be watched', resources.filter((one) => one !== 'nodes')],
  ])('but not after lists with older versions %s', (_, listed) => {
    const cut = cutOf();
    observe(cut, 'nodes', '120', 10);
    for (const resource of resources) cut.setState(resource, 'off', 20);
    for (const resource of listed) cut.setState(resource, 'relisting', 20);
    for (const resource of listed) cut.bookmark(resource, '60', 21);
    for (const resource of listed) cut.setState(resource, 'synced', 21);
    expect(cut.newest()).toBe('60');
    expect(observe(cut, 'pods', '61', 30)).toBeNull();
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
      'input 10-25',
      'mirrored 12-25',
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
            const over = spells.find((spell) => spell.outputs.has(output));
            expect(over?.from).toBe(blind ? undefined : since.get(output));
            if (!blind) since.delete(output);
            else if (!since.has(output)) since.set(output, index + 10);
          }
        }
      }),
    );
  });
});
