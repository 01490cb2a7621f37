// The settle window on made-up differences: clocks, findings, and what a finding says when it opens
// and when it is resolved.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import type { Code, Finding, Output } from '../../../src/audit/finding/catalogue.ts';
import { bySeverity, catalogue } from '../../../src/audit/finding/catalogue.ts';
import { difference } from '../../../src/audit/finding/difference.ts';
import type {
  MissedChanges,
  PendingDifference,
  PendingFindings,
} from '../../../src/audit/pending/pending.ts';
import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { times } from '../../build.ts';

function item(
  code: Code,
  since: number,
  more: Partial<PendingDifference> = {},
  text = '',
): PendingDifference {
  return {
    difference: difference(code, `object${text}`, 'field', `want${text}`, `got${text}`),
    output: catalogue[code].output,
    severity: catalogue[code].severity,
    cause: null,
    since,
    unseen: 0,
    openedAt: null,
    gone: false,
    ...more,
  };
}

interface Watched {
  readonly settle: PendingFindings;
  readonly said: string[];
  readonly watch: (one: PendingDifference, now?: number, service?: string) => void;
}

function watching(window = 30, keep = 100): Watched {
  const said: string[] = [];
  const say =
    (word: string) =>
    ({ code, service, openedAt, resolvedAt }: Finding): void =>
      void said.push(`${word} ${service} ${code} ${resolvedAt ?? openedAt}`);
  const settle = createPendingFindings({
    window,
    keep,
    onOpen: say('open'),
    onResolve: say('resolved'),
  });
  const watch = (one: PendingDifference, now = one.since, service = 'web'): void =>
    settle.watch(one, 'shop', service, now);
  return { settle, said, watch };
}

/** Delays an output that no watch showed, for at least 5 s. */
function delay(settle: PendingFindings, output: Output, from: number, to: number): void {
  runToEnd(settle.delay({ outputs: new Set([output]), from, to, least: 5 }));
}

describe('the differences of a finding', () => {
  test('are those that it has now, and when it is resolved the first 100', () => {
    const { settle, watch } = watching(0, 9);
    const items = times(150, (n) => item('slice-endpoint-missing', 100, {}, ` ${n}`));
    for (const one of items) watch(one);
    settle.advance(100);
    expect(settle.open()[0]?.differences).toHaveLength(150);
    expect(settle.open()[0]?.differences[0]).toEqual({
      code: 'slice-endpoint-missing',
      ...{ address: null, pod: null, field: 'field' },
      ...{ expected: 'want 0', actual: 'got 0', object: 'object 0' },
    });
    for (const one of items.slice(0, 149)) settle.drop(one, 110);
    expect(settle.open()[0]?.differences.map(({ object }) => object)).toEqual(['object 149']);
    for (const one of items.slice(149)) settle.drop(one, 120);
    expect(settle.resolved()[0]?.differences).toHaveLength(100);
  });

  test('come from the fields that were compared', () => {
    const { settle, watch } = watching(0);
    const one = item('slice-endpoint-different', 100);
    const fields = [
      ['nodeName', 'a', 'b'],
      ['zone', null, 'z'],
    ] as const;
    const place = { address: '10.0.0.1', pod: 'shop/web-1' };
    watch({ ...one, difference: { ...one.difference, ...place, fields } });
    settle.advance(100);
    expect(settle.open()[0]?.differences).toMatchObject([
      { ...place, field: 'nodeName', expected: 'a', actual: 'b' },
      { ...place, field: 'zone', expected: null, actual: 'z' },
    ]);
  });
});

describe('the settle window', () => {
  test('a difference opens at the end of its window, not before', () => {
    const { settle, said, watch } = watching();
    watch(item('slice-endpoint-missing', 100));
    settle.advance(129.9);
    expect(said).toEqual([]);
    expect(settle.nextAt()).toBe(130);
    settle.advance(130);
    expect(said).toEqual(['open web slice-endpoint-missing 130']);
    expect(settle.nextAt()).toBeNull();
  });

  test('a late call opens a difference with the time of its end', () => {
    const { settle, watch } = watching();
    watch(item('slice-endpoint-missing', 100));
    settle.advance(500);
    expect(settle.open()).toMatchObject([{ since: 100, openedAt: 130, resolvedAt: null }]);
  });

  test('a difference that is older than the window opens now', () => {
    const { settle, said, watch } = watching();
    watch(item('slice-endpoint-missing', 100), 200);
    settle.advance(200);
    expect(said).toEqual(['open web slice-endpoint-missing 200']);
  });

  test('a difference that ends before does not open', () => {
    const { settle, said, watch } = watching();
    const one = item('slice-endpoint-missing', 100);
    watch(one);
    settle.drop(one, 129);
    expect(settle.nextAt()).toBeNull();
    settle.advance(200);
    expect(said).toEqual([]);
  });

  test('a restarted clock counts from its restart', () => {
    const { settle, said, watch } = watching();
    const one = item('slice-endpoint-missing', 100);
    watch(one);
    one.since = 120;
    watch(one);
    settle.advance(149);
    expect(said).toEqual([]);
    settle.advance(150);
    expect(said).toEqual(['open web slice-endpoint-missing 150']);
  });

  test('time in which nothing was seen makes the window longer, and adds up', () => {
    const { settle, watch } = watching();
    watch(item('slice-endpoint-missing', 100, { unseen: 10 }));
    expect(settle.nextAt()).toBe(140);
    delay(settle, 'endpointslices', 105, 115);
    expect(settle.nextAt()).toBe(150);
    delay(settle, 'endpointslices', 120, 125);
    expect(settle.nextAt()).toBe(155);
  });

  test('a difference that waits begins to be pending again when nothing is seen', () => {
    const opened: string[] = [];
    let isAdmitted = false;
    const settle = createPendingFindings({
      ...{ window: 30, keep: 9, admit: () => isAdmitted },
      onOpenDifference: ({ item: { difference: it } }) => opened.push(it.code),
    });
    settle.watch(item('slice-endpoint-missing', 100), 'shop', 'web', 100);
    settle.advance(130);
    expect([...settle.waiting()]).toHaveLength(1);
    delay(settle, 'endpointslices', 131, 141);
    expect([...settle.waiting()]).toEqual([]);
    isAdmitted = true;
    settle.retry(141);
    expect(opened).toEqual([]);
    settle.advance(146);
    expect(opened).toEqual(['slice-endpoint-missing']);
  });

  test.each([
    [[true, true], true],
    [[true, false], false],
  ])(
    'the cause of differences whose causes are certain as in %j is certain: %j',
    (proven, want) => {
      const { settle, watch } = watching();
      for (const [n, is] of proven.entries()) {
        const more = { cause: 'hand-edited', proven: is } as const;
        watch(item('slice-endpoint-missing', 100, more, String(n)));
      }
      watch(item('slice-endpoint-unexpected', 100, { proven: true }));
      settle.advance(130);
      const found = new Map(settle.open().map(({ code, causeProven }) => [code, causeProven]));
      expect(found.get('slice-endpoint-missing')).toBe(want);
      expect(found.get('slice-endpoint-unexpected')).toBe(false);
    },
  );

  test('differences whose windows the caller has measured open at once', () => {
    const { settle, said } = watching();
    const one = item('slice-endpoint-missing', 100);
    settle.openNow([{ item: one, namespace: 'shop', service: 'web' }], 105);
    expect(said).toEqual(['open web slice-endpoint-missing 105']);
  });

  test('a window of no length opens a difference at once', () => {
    const { settle, said, watch } = watching(0);
    watch(item('slice-endpoint-missing', 100));
    settle.advance(100);
    expect(said).toHaveLength(1);
  });

  test('differences open in the order of their ends, in whichever order they were added', () => {
    const property = fc.property(fc.array(fc.nat(50), { maxLength: 40 }), (starts) => {
      const { settle, said, watch } = watching(10);
      for (const [index, since] of starts.entries()) {
        watch(item('slice-endpoint-missing', since), since, `s${index}`);
      }
      settle.advance(100);
      const opened = said.map((line) => Number(line.split(' ').at(-1)));
      expect(opened).toEqual(starts.map((since) => since + 10).sort((a, b) => a - b));
    });
    fc.assert(property);
  });
});

const togetherCases: [string, [Code, Partial<PendingDifference>][], number][] = [
  [
    'two addresses of one code',
    [
      ['slice-endpoint-missing', {}],
      ['slice-endpoint-missing', {}],
    ],
    1,
  ],
  [
    'two severities of one code',
    [
      ['slice-conditions-different', {}],
      ['slice-conditions-different', { severity: 'critical' }],
    ],
    1,
  ],
  [
    'two codes',
    [
      ['slice-endpoint-missing', {}],
      ['slice-endpoint-unexpected', {}],
    ],
    2,
  ],
  [
    'two outputs',
    [
      ['slice-endpoint-missing', {}],
      ['endpoints-address-missing', {}],
    ],
    2,
  ],
  [
    'two causes',
    [
      ['slice-endpoint-missing', {}],
      ['slice-endpoint-missing', { cause: 'hand-edited' }],
    ],
    2,
  ],
  [
    'one cause',
    [
      ['slice-endpoint-missing', { cause: 'hand-edited' }],
      ['slice-endpoint-missing', { cause: 'hand-edited' }],
    ],
    1,
  ],
  [
    'two nodes',
    [
      ['node-endpoint-missing', { node: 'a' }],
      ['node-endpoint-missing', { node: 'b' }],
    ],
    2,
  ],
  [
    'two codes of the input',
    [
      ['left-behind', {}],
      ['left-behind-dead', {}],
    ],
    2,
  ],
  [
    'one code of the input',
    [
      ['address-shared', {}],
      ['address-shared', {}],
    ],
    1,
  ],
];

describe('differences of one code and cause are one finding', () => {
  test.each(togetherCases)('%s', (_, items, want) => {
    const { settle, said, watch } = watching();
    for (const [code, more] of items) watch(item(code, 0, more));
    settle.advance(30);
    expect(settle.open()).toHaveLength(want);
    expect(said).toHaveLength(want);
  });

  test('differences of two Services are two findings', () => {
    const { settle, watch } = watching();
    watch(item('slice-endpoint-missing', 0), 0, 'web');
    watch(item('slice-endpoint-missing', 0), 0, 'api');
    settle.advance(30);
    expect(settle.open().map(({ service }) => service)).toEqual(['web', 'api']);
  });

  test('a difference that joins later is reported by the open finding', () => {
    const { settle, said, watch } = watching();
    watch(item('slice-endpoint-missing', 0, {}, ' 1'));
    watch(item('slice-endpoint-missing', 10, {}, ' 2'));
    settle.advance(30);
    expect(settle.open()).toMatchObject([{ expected: 'want 1' }]);
    settle.advance(40);
    expect(said).toHaveLength(1);
    expect(settle.open()).toMatchObject([{ expected: 'want 1; want 2', since: 0, openedAt: 30 }]);
  });
});

describe('the severity of a finding', () => {
  test('is that of the worst difference that it has, whose text is the first', () => {
    const { settle, watch } = watching();
    const worst = item('slice-conditions-different', 5, { severity: 'critical' }, ' worst');
    watch(item('slice-conditions-different', 0, {}, ' first'));
    watch(worst);
    settle.advance(30);
    expect(settle.open()).toMatchObject([{ severity: 'warning', expected: 'want first' }]);
    settle.advance(35);
    const both = { severity: 'critical', expected: 'want worst; want first', since: 0 };
    expect(settle.open()).toMatchObject([both]);
    settle.drop(worst, 110);
    expect(settle.open()).toMatchObject([{ severity: 'warning', expected: 'want first' }]);
  });

  test('follows its differences and is the worst that it had once it is resolved', () => {
    const { settle, watch } = watching();
    const one = item('slice-conditions-different', 0);
    watch(one);
    settle.advance(30);
    for (const severity of ['critical', 'info'] as const) {
      one.severity = severity;
      settle.update(one);
      expect(settle.open()[0]?.severity).toBe(severity);
    }
    settle.drop(one, 50);
    expect(settle.resolved()[0]?.severity).toBe('critical');
  });

  test('does not depend on pending differences', () => {
    const { settle, watch } = watching();
    const one = item('slice-endpoint-missing', 0);
    watch(one);
    settle.update(one);
    expect(settle.open()).toEqual([]);
  });
});

describe('any history of differences', () => {
  const choices = {
    code: ['slice-endpoint-missing', 'slice-conditions-different', 'address-shared'],
    cause: [null, 'hand-edited', 'pod-phase-unnoticed'],
    severity: ['critical', 'warning', 'info'],
    service: ['web', 'api'],
  } as const;
  const action = fc.record({
    kind: fc.constantFrom('watch', 'drop', 'update', 'cause'),
    code: fc.constantFrom(...choices.code),
    cause: fc.constantFrom(...choices.cause),
    severity: fc.constantFrom(...choices.severity),
    service: fc.constantFrom(...choices.service),
    which: fc.nat(20),
    seconds: fc.nat(20),
  });

  const nameOf = ({ namespace, service, output, node, code, cause, openedAt }: Finding): string =>
    [namespace, service, output, node, code, cause, openedAt].join(' ');

  test('has one finding for each owner, code and cause, which never change', () => {
    const property = fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
      const unresolved = new Map<string, Finding>();
      const counts = { opened: 0, resolved: 0 };
      const settle = createPendingFindings({
        window: 10,
        keep: 1000,
        onOpen(finding) {
          counts.opened++;
          unresolved.set(nameOf(finding), finding);
        },
        onResolve(finding) {
          counts.resolved++;
          expect(unresolved.delete(nameOf(finding))).toBe(true);
        },
      });
      const watched: { one: PendingDifference; service: string }[] = [];
      let now = 0;
      for (const { kind, which, seconds, service, severity, ...more } of actions) {
        now += seconds;
        settle.advance(now);
        const index = which % Math.max(1, watched.length);
        const known = watched[index];
        if (kind === 'watch') {
          const one = item(more.code, now, { cause: more.cause, severity });
          watched.push({ one, service });
          settle.watch(one, 'shop', service, now);
        } else if (known !== undefined && kind === 'update') {
          known.one.severity = severity;
          settle.update(known.one);
        } else if (known !== undefined) {
          settle.drop(known.one, now);
          watched.splice(index, 1);
          if (kind === 'cause') {
            const one = { ...known.one, cause: more.cause, openedAt: null, gone: false };
            watched.push({ ...known, one });
            settle.watch(one, 'shop', known.service, now);
          }
        }
        const open = watched.filter(({ one }) => one.openedAt !== null);
        const groups = Map.groupBy(open, ({ one: { difference, cause }, service: owner }) =>
          [owner, difference.code, cause].join(' '),
        );
        const wanted = [...groups].map(([name, all]) => {
          const [worst] = all.map(({ one }) => one).sort(bySeverity);
          return `${name} ${worst?.severity} ${Math.min(...all.map(({ one }) => one.since))}`;
        });
        const got = settle
          .open()
          .map((it) => [it.service, it.code, it.cause, it.severity, it.since].join(' '));
        expect(got.sort()).toEqual(wanted.sort());
        expect(settle.open().map(nameOf).sort()).toEqual([...unresolved.keys()].sort());
        expect(counts.opened).toBe(counts.resolved + settle.open().length);
      }
    });
    fc.assert(property);
  });
});

describe('the end of a finding', () => {
  test('comes with its last difference, and lists all that it had', () => {
    const { settle, said, watch } = watching();
    const [one, two] = [
      item('slice-endpoint-missing', 0, {}, ' 1'),
      item('slice-endpoint-missing', 10, {}, ' 2'),
    ];
    watch(one);
    watch(two);
    settle.advance(100);
    settle.drop(one, 110);
    expect(settle.resolved()).toEqual([]);
    settle.drop(two, 120);
    expect(said.at(-1)).toBe('resolved web slice-endpoint-missing 120');
    expect(settle.open()).toEqual([]);
    const want = { expected: 'want 1; want 2', since: 0, openedAt: 30, resolvedAt: 120 };
    expect(settle.resolved()).toMatchObject([want]);
  });

  test('makes a later difference another finding', () => {
    const { settle, said, watch } = watching();
    for (const since of [0, 100]) {
      const one = item('slice-endpoint-missing', since);
      watch(one);
      settle.advance(since + 30);
      settle.drop(one, since + 40);
    }
    expect(said).toHaveLength(4);
    expect(settle.resolved().map(({ openedAt }) => openedAt)).toEqual([30, 130]);
  });

  test('is counted if more findings are resolved than kept', () => {
    const { settle, watch } = watching(0, 2);
    for (const since of times(5, (index) => index)) {
      const one = item('slice-endpoint-missing', since);
      watch(one);
      settle.advance(since);
      settle.drop(one, since + 0.5);
    }
    expect(settle.resolved().map(({ openedAt }) => openedAt)).toEqual([3, 4]);
    expect(settle.forgotten()).toBe(3);
  });
});

describe('a finding with many differences', () => {
  function crowded(count: number): Finding {
    const { settle, watch } = watching(0);
    for (const index of times(count, (one) => one)) {
      const one = item('slice-endpoint-missing', 0, {}, ` ${index}`);
      one.difference = { ...one.difference, object: 'EndpointSlices of Service shop/web' };
      watch(one);
    }
    settle.advance(0);
    const [finding] = settle.open();
    if (finding === undefined) throw new Error('No finding');
    return finding;
  }

  test('lists a hundred and counts the others', () => {
    expect(crowded(100).expected?.split('; ')).toHaveLength(100);
    const many = crowded(150).expected?.split('; ') ?? [];
    expect(many).toHaveLength(101);
    expect(many.at(-1)).toBe('and 50 more');
  });

  test('lists a common text once', () => {
    const { object, field } = crowded(150);
    expect([object, field]).toEqual(['EndpointSlices of Service shop/web', 'field']);
  });
});

describe('a difference that is not admitted', () => {
  const gated = (): Watched & { readonly admitted: Set<PendingDifference> } => {
    const said: string[] = [];
    const admitted = new Set<PendingDifference>();
    const settle = createPendingFindings({
      window: 30,
      keep: 9,
      admit: ({ item }) => admitted.has(item),
      onOpen: ({ code, openedAt }) => void said.push(`open ${code} ${openedAt}`),
    });
    const watch = (one: PendingDifference): void => settle.watch(one, 'shop', 'web', one.since);
    return { settle, said, watch, admitted };
  };

  test('waits and opens when it is retried', () => {
    const { settle, said, watch, admitted } = gated();
    const one = item('slice-endpoint-missing', 100);
    watch(one);
    settle.advance(130);
    expect([said, [...settle.waiting()].length, settle.nextAt()]).toEqual([[], 1, null]);
    settle.retry(131);
    admitted.add(one);
    settle.retry(132);
    expect(said).toEqual(['open slice-endpoint-missing 132']);
    expect([...settle.waiting()]).toEqual([]);
  });

  test('opens when it is retried, not before, although another output was delayed', () => {
    const { settle, said, watch, admitted } = gated();
    const one = item('slice-endpoint-missing', 100);
    watch(one);
    settle.advance(130);
    delay(settle, 'endpoints', 131, 141);
    admitted.add(one);
    settle.advance(141);
    settle.retry(141);
    expect(said).toEqual(['open slice-endpoint-missing 141']);
  });

  test('never opens if it ends meanwhile', () => {
    const { settle, said, watch, admitted } = gated();
    const one = item('slice-endpoint-missing', 100);
    watch(one);
    settle.advance(130);
    settle.drop(one, 131);
    admitted.add(one);
    settle.retry(132);
    expect([said, [...settle.waiting()]]).toEqual([[], []]);
  });
});

describe('a time without connected watches', () => {
  const cases: [string, number, number, number, number][] = [
    ['makes the window longer by itself', 100, 110, 120, 140],
    ['counts from the beginning of the difference', 100, 90, 120, 150],
    ['leaves at least a few seconds', 100, 128, 129, 134],
    ['also when the window had passed', 100, 140, 160, 165],
  ];
  test.each(cases)('%s', (_name, since, from, to, due) => {
    const { settle, watch } = watching();
    watch(item('slice-endpoint-missing', since));
    delay(settle, 'endpointslices', from, to);
    expect(settle.nextAt()).toBe(due);
  });

  test('does not count for the lesser differences that a later one may continue', () => {
    const { settle, watch } = watching();
    const lesser = item('slice-hints-different', 105);
    watch(item('slice-endpoint-missing', 100, { lesser: [lesser] }));
    delay(settle, 'endpointslices', 102, 110);
    expect(lesser.unseen).toBe(5);
  });

  test('affects neither other outputs nor open differences', () => {
    const { settle, said, watch } = watching();
    watch(item('slice-endpoint-missing', 100));
    settle.advance(130);
    watch(item('endpoints-missing', 110));
    delay(settle, 'endpointslices', 110, 150);
    expect(settle.nextAt()).toBe(140);
    expect(said).toEqual(['open web slice-endpoint-missing 130']);
    expect(settle.open()).toHaveLength(1);
  });

  test('keeps the order of the windows', () => {
    const dues = fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 0, max: 60 })));
    fc.assert(
      fc.property(dues, fc.nat(60), fc.nat(30), (all, from, length) => {
        const { settle, watch } = watching();
        const to = from + length;
        const want = all.map(([isSlice, since], index) => {
          watch(
            item(isSlice ? 'slice-endpoint-missing' : 'endpoints-missing', since),
            0,
            `${index}`,
          );
          const shifted = Math.max(since + 30 + to - Math.max(from, since), to + 5);
          return isSlice ? shifted : since + 30;
        });
        delay(settle, 'endpointslices', from, to);
        const got: number[] = [];
        for (let next = settle.nextAt(); next !== null; next = settle.nextAt()) {
          const before = settle.open().length;
          settle.advance(next);
          for (let count = settle.open().length - before; count > 0; count--) got.push(next);
        }
        expect(got).toEqual(want.sort((a, b) => a - b));
      }),
    );
  });
});

test('delays thousands of windows in steps, and allows other work between them', () => {
  const { settle, said, watch } = watching();
  const missed: MissedChanges = { count: 0, latest: new Map() };
  const items = times(2500, (index) =>
    item('slice-endpoint-missing', 100, index === 2400 ? { missed } : {}),
  );
  for (const [index, one] of items.entries()) watch(one, 100, `web-${index}`);
  const spell = { outputs: new Set(['endpointslices'] as const), from: 110, to: 120, least: 5 };
  const delaying = settle.delay(spell);
  const turns: number[] = [];
  for (let more = true; more;) {
    more = delaying.next().done !== true;
    if (turns.length === 1) {
      for (const one of items.slice(2000, 2200)) settle.drop(one, 120);
      missed.latest.set('endpointslices', { at: 115, count: ++missed.count });
    }
    turns.push(settle.pending().length);
  }
  expect(turns).toEqual([2500, 2300, 2300, 2300]);
  settle.advance(139);
  expect(said).toEqual([]);
  settle.advance(140);
  expect(said).toHaveLength(2299);
  settle.advance(149);
  expect(said).toHaveLength(2299);
  settle.advance(150);
  expect(said.at(-1)).toBe('open web-2400 slice-endpoint-missing 150');
});

/** What can happen to the differences of three Services, each with a number that chooses. */
const steps = ['watch', 'drop', 'miss', 'delay', 'admit', 'wait'] as const;
type Step = readonly [(typeof steps)[number], number];

/** When each difference has opened, after each step. */
function openedBy(all: readonly Step[], burst: number): (readonly (number | null)[])[] {
  let isAdmitted = true;
  let now = 0;
  const settle = createPendingFindings({ window: 30, keep: 9, burst, admit: () => isAdmitted });
  const missed = times(3, () => ({ count: 0, latest: new Map() }));
  const items: PendingDifference[] = [];
  const takeStep = ([name, choice]: Step): void => {
    const service = choice % 3;
    const known = items[choice % Math.max(1, items.length)];
    const changes = missed[service];
    if (name === 'watch') {
      const one = item('slice-endpoint-missing', now, changes && { missed: changes });
      items.push(one);
      settle.watch(one, 'shop', `web-${service}`, now);
    } else if (name === 'drop' && known !== undefined) settle.drop(known, now);
    else if (name === 'miss' && changes !== undefined) {
      changes.latest.set('endpointslices', { at: now, count: ++changes.count });
    } else if (name === 'delay') {
      now += choice / 4;
      delay(settle, 'endpointslices', now - choice / 4, now);
    } else if (name === 'admit') isAdmitted = choice % 2 === 0;
    else if (name === 'wait') now += choice;
  };
  return all.map((step) => {
    takeStep(step);
    do settle.advance(now);
    while ((settle.nextAt() ?? Infinity) <= now);
    for (let left = settle.waiting().size; left > 0; left -= burst) settle.retry(now);
    return items.map(({ openedAt }) => openedAt);
  });
}

test('differences open at the same times whether few or all are looked at in turn', () => {
  const step = fc.tuple(fc.constantFrom(...steps), fc.nat(40));
  fc.assert(
    fc.property(fc.array(step, { minLength: 20, maxLength: 80 }), (all) => {
      expect(openedBy(all, 2)).toEqual(openedBy(all, Infinity));
    }),
    { numRuns: 300 },
  );
});

test('a call looks at a limited number of differences whose clocks were restarted', () => {
  const settle = createPendingFindings({ window: 30, keep: 9, burst: 10 });
  const changes: MissedChanges = { count: 1, latest: new Map() };
  const items = times(100, () =>
    item('slice-endpoint-missing', 0, { missed: changes, missedCount: 0 }),
  );
  for (const one of items) settle.watch(one, 'shop', 'web', 0);
  changes.latest.set('endpointslices', { at: 20, count: 1 });
  const restarted = (): number => items.filter(({ since }) => since === 20).length;
  // The time of another one that is not looked at yet: the next call comes too early.
  expect([settle.nextAt(), restarted()]).toEqual([30, 10]);
  settle.advance(30);
  expect(restarted()).toBe(20);
  for (let calls = 0; calls < 8; calls++) settle.advance(30);
  expect([settle.nextAt(), restarted(), settle.open().length]).toEqual([50, 100, 0]);
});
