// Whether controllers write, by their last writes and by the Services that wait for them.

import { describe, expect, test } from 'vitest';

import { createControllerActivity } from '../../../src/audit/incident/controllers.ts';
import type { ServiceAudit, ServiceDifference } from '../../../src/audit/service/reconcile.ts';

const window = 30;

interface Waiting {
  readonly since: number;
  readonly output?: 'endpoints' | 'endpointslices' | 'mirrored';
  readonly byInput?: boolean;
  readonly cause?: 'hand-edited' | null;
  readonly severity?: 'warning' | 'info';
}

/** A Service with one difference. */
function auditOf({ since, ...more }: Waiting): ServiceAudit {
  const item = {
    output: 'endpoints',
    byInput: true,
    cause: null,
    severity: 'warning',
    lateSince: since,
    ...more,
  };
  return {
    items: new Map([['10.0.0.1', [item as unknown as ServiceDifference]]]),
  } as unknown as ServiceAudit;
}

const write = (at: number, seconds: number) => ({
  output: 'endpoints' as const,
  operation: 'add' as const,
  namespace: 'shop',
  service: 'web',
  node: null,
  seconds,
  at,
});

/** The evidence of the endpoints controller at a time. */
function assessed(
  at: number,
  waiting: readonly Waiting[],
  writes: readonly (readonly [at: number, seconds: number])[] = [],
) {
  const activity = createControllerActivity(window);
  for (const [time, seconds] of writes) activity.noteWrite(write(time, seconds));
  const audited = new Map(waiting.map((it, index) => [`shop/${index}`, auditOf(it)]));
  for (const key of audited.keys()) activity.noteChange(key);
  return activity.assess(audited, at).endpoints;
}

describe('a controller is silent', () => {
  test('if two Services wait, and nothing was written since', () => {
    const got = assessed(40, [{ since: 5 }, { since: 10 }], [[3, 0.1]]);
    expect(got).toMatchObject({ state: 'silent', waiting: 2, since: 5, wroteAt: 3 });
  });

  test.each<readonly [string, readonly Waiting[], readonly (readonly [number, number])[]]>([
    ['one Service waits', [{ since: 5 }], []],
    ['it wrote to another Service later', [{ since: 5 }, { since: 6 }], [[20, 0.1]]],
    ['one of two waited for less than five seconds', [{ since: 5 }, { since: 36 }], []],
    ['no change of the input made one', [{ since: 5 }, { since: 6, byInput: false }], []],
    ['one has a cause', [{ since: 5 }, { since: 6, cause: 'hand-edited' }], []],
    ['one does no harm', [{ since: 5 }, { since: 6, severity: 'info' }], []],
    ['one waits for another controller', [{ since: 5 }, { since: 6, output: 'mirrored' }], []],
  ])('but not if %s', (_, waiting, writes) => {
    expect(assessed(40, waiting, writes).state).toBe('writing');
  });

  test('but not after the differences have ended', () => {
    const activity = createControllerActivity(window);
    const audited = new Map([
      ['shop/a', auditOf({ since: 5 })],
      ['shop/b', auditOf({ since: 6 })],
    ]);
    for (const key of audited.keys()) activity.noteChange(key);
    expect(activity.assess(audited, 40).endpoints.state).toBe('silent');
    audited.delete('shop/b');
    activity.noteChange('shop/b');
    expect(activity.assess(audited, 40).endpoints.state).toBe('writing');
  });
});

describe('a controller is slow', () => {
  const waiting = [{ since: 5 }, { since: 6 }];
  test('if two Services have waited for the window, and half of its writes are late', () => {
    const got = assessed(40, waiting, [
      [30, 12],
      [35, 14],
      [39, 0.5],
      [39.5, 20],
    ]);
    expect(got).toMatchObject({ state: 'slow', writes: 4, lag: 14, lateAt: 39.5 });
  });

  test('in the second in which the first two Services have waited for the window', () => {
    const got = assessed(
      40.3,
      [{ since: 10.1 }, { since: 10.2 }],
      [
        [38, 12],
        [39, 13],
        [40, 14],
      ],
    );
    expect(got.state).toBe('slow');
  });

  test('but not if most of its writes come in time', () => {
    const got = assessed(40, waiting, [
      [30, 12],
      [35, 1],
      [39, 0.5],
    ]);
    expect(got).toMatchObject({ state: 'writing', lag: 1 });
  });

  test('but not if its late writes are long ago', () => {
    expect(
      assessed(140, waiting, [
        [30, 12],
        [35, 14],
        [39, 20],
      ]).state,
    ).toBe('writing');
  });
});
