// The inferred release of a dump: its kubelets and Endpoints rule others out.

import { describe, expect, test } from 'vitest';

import { label, manager } from '../../src/model/objects.ts';
import {
  assumedRelease,
  chooseRelease,
  createReleaseChoice,
  detectRelease,
} from '../../src/shadow/detect-release.ts';
import { nameOf, newestRelease, oldestRelease, releaseOf } from '../../src/shadow/release.ts';
import { endpoints, service, storeOf } from '../build.ts';

const labelled = endpoints({ labels: { [label.endpointsManagedBy]: manager.endpoints } });
const plain = endpoints({ labels: {} });
const other = service({ name: 'api' });
const newest = newestRelease.minor;
const oldest = oldestRelease.minor;
const unselected = service({ selector: null });

describe('detectRelease', () => {
  const cases: [string, Parameters<typeof storeOf>[0], number | null, string][] = [
    ['no evidence', [], null, `${newest} newest`],
    ['the label is there', [service(), labelled], null, `${newest} labels`],
    ['it is not', [service(), plain], null, '32 labels'],
    [
      'of some it is',
      [service(), plain, other, { ...labelled, key: 'shop/api' }],
      null,
      `${newest} labels`,
    ],
    ['Endpoints that people write have none', [unselected, plain], null, `${newest} newest`],
    ['Endpoints without a Service neither', [plain], null, `${newest} newest`],
    ['an old kubelet and no label', [service(), plain], 30, '32 kubelets and labels'],
    ['a kubelet of the release before', [], oldest - 1, `${newest} kubelets`],
    ['a kubelet too old for all that is known', [service(), plain], 20, `${oldest} oldest`],
    [
      'one with Endpoints that have the label',
      [service(), labelled],
      20,
      `${newest} kubelets and labels`,
    ],
    ['a new kubelet and the label', [service(), labelled], 34, `${newest} kubelets and labels`],
    ['a kubelet newer than the label is', [service(), plain], 33, `${newest} kubelets`],
    ['kubelets alone', [], 30, `${newest} kubelets`],
    ['a kubelet newer than all that is known', [service(), plain], newest + 1, `${newest} newest`],
  ];
  test.each(cases)('%s', (_, objects, kubelet, want) => {
    const { release, by } = detectRelease(storeOf(objects).listers, kubelet);
    expect(`${String(release.minor)} ${by}`).toBe(want);
  });
});

test('the evidence names the releases that it allows', () => {
  const evidence = (objects: Parameters<typeof storeOf>[0], kubelet: number | null) =>
    detectRelease(storeOf(objects).listers, kubelet).evidence;
  const last = nameOf(newestRelease);
  expect(evidence([], 33)).toBe(`kubelets 1.33 allow 1.33-${last}`);
  expect(evidence([], newest)).toBe(`kubelets ${last} allow ${last}`);
  expect(evidence([service(), plain], 30)).toBe(
    'kubelets 1.30 and labels of Endpoints allow 1.30-1.32',
  );
  expect(evidence([service(), labelled], null)).toBe(`labels of Endpoints allow 1.33-${last}`);
  expect(evidence([], null)).toBeNull();
});

describe('chooseRelease', () => {
  const old = releaseOf('v1.31.0');
  const cases: [string, typeof old, string | null, string][] = [
    ['the option goes before the version', old, 'v1.33.1', '31 option'],
    ['the version before what is guessed', null, 'v1.33.1', '33 version'],
    ['a version that is not known is guessed', null, 'v1.99.0', `${newest} newest`],
    ['a version older than all known is the oldest', null, 'v1.20.15', `${oldest} oldest`],
    ['the release before the oldest too', null, `v1.${oldest - 1}.0`, `${oldest} oldest`],
    ['no version is guessed', null, null, `${newest} newest`],
  ];
  test.each(cases)('%s', (_, option, version, want) => {
    const { release, by } = chooseRelease(option, version, assumedRelease);
    expect(`${String(release.minor)} ${by}`).toBe(want);
  });

  test('what is assumed is the newest', () => {
    expect(assumedRelease.release).toBe(newestRelease);
  });
});

// An upgrade from 1.32 to 1.33. A number says how many of ten Endpoints have the label.
describe('during an upgrade, labels of Endpoints show the release of the controllers', () => {
  const listersOf = (count: number, of = 10) => {
    const names = Array.from({ length: of }, (_, index) => `web-${index}`);
    const labelsOf = (index: number) => (index < count ? labelled.labels : {});
    return storeOf([
      ...names.map((name) => service({ name })),
      ...names.map((name, index) => endpoints({ name, labels: labelsOf(index) })),
    ]).listers;
  };
  /** Each step: seconds, Endpoints with the label, and all of them. */
  type Step = [at: number, labelled: number, all?: number];
  const cases: [string, string, Step[], number[]][] = [
    [
      'the API server comes first',
      'v1.33.1',
      [
        [0, 0],
        [60, 0],
      ],
      [32, 32],
    ],
    [
      'the new controllers label one after the other',
      'v1.33.1',
      [
        [0, 0],
        [10, 6],
        [20, 9],
      ],
      [32, 32, 32],
    ],
    [
      'and have labelled all',
      'v1.33.1',
      [
        [0, 0],
        [10, 6],
        [20, 10],
      ],
      [32, 32, 33],
    ],
    [
      'a label is missing for 30 s',
      'v1.33.1',
      [
        [0, 0],
        [10, 9],
        [39, 9],
        [50, 9],
      ],
      [32, 32, 32, 33],
    ],
    [
      'new Services come labelled',
      'v1.33.1',
      [
        [0, 0],
        [10, 9],
        [20, 10, 11],
        [41, 12, 13],
      ],
      [32, 32, 32, 33],
    ],
    [
      'a few labels may be edits',
      'v1.33.1',
      [
        [0, 0],
        [10, 1],
        [90, 1],
      ],
      [32, 32, 32],
    ],
    [
      'an auditor starts amid the upgrade',
      'v1.33.1',
      [
        [0, 4],
        [20, 5],
        [60, 5],
      ],
      [32, 32, 32],
    ],
    [
      'one label was removed by hand',
      'v1.33.1',
      [
        [0, 9],
        [60, 9],
      ],
      [33, 33],
    ],
    [
      'another API server is still old',
      'v1.32.1',
      [
        [0, 10],
        [60, 10],
      ],
      [33, 33],
    ],
    [
      'an old cluster with some labels',
      'v1.32.1',
      [
        [0, 3],
        [60, 3],
      ],
      [32, 32],
    ],
    [
      'an old cluster',
      'v1.32.1',
      [
        [0, 0],
        [60, 0],
      ],
      [32, 32],
    ],
    [
      'a difference of two releases is no upgrade',
      'v1.34.1',
      [
        [0, 0],
        [60, 0],
      ],
      [34, 34],
    ],
  ];
  test.each(cases)('%s', (_, version, counts, want) => {
    const choice = createReleaseChoice(null);
    choice.setVersion(version);
    const got = counts.map(([at, count, all]) => {
      choice.review(listersOf(count, all), at);
      return choice.current().release.minor;
    });
    expect(got).toEqual(want);
  });

  test('a single one may be an edit', () => {
    const choice = createReleaseChoice(null);
    choice.setVersion('v1.33.1');
    expect(choice.review(listersOf(0, 1), 0)).toBe(false);
    expect(choice.current()).toMatchObject({ release: { minor: 33 }, by: 'version' });
  });

  test('Endpoints with the label and without it are both right, until all have it', () => {
    const choice = createReleaseChoice(null);
    choice.setVersion('v1.32.1');
    choice.review(listersOf(0), 0);
    expect(choice.current().release.endpointsManagedBy).toBe(false);
    choice.setVersion('v1.33.1');
    const between = choice.current();
    expect(between).toMatchObject({ release: { minor: 32, endpointsManagedBy: null } });
    expect(choice.review(listersOf(4), 10)).toBe(false);
    expect(choice.current()).toBe(between);
  });

  test('the option goes first', () => {
    const choice = createReleaseChoice(releaseOf('v1.33.1'));
    choice.setVersion('v1.33.1');
    expect(choice.review(listersOf(0), 0)).toBe(false);
    expect(choice.current()).toMatchObject({ release: { minor: 33 }, by: 'option' });
  });
});
