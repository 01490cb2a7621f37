// Following a cluster change by change finds the same as a start at the end. History only adds
// causes and clocks.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createPendingFindings } from '../../../src/audit/pending/pending.ts';
import type { ServiceAuditor } from '../../../src/audit/service/auditor.ts';
import { createServiceAuditor } from '../../../src/audit/service/auditor.ts';
import type { AuditContext } from '../../../src/audit/service/cache.ts';
import type { Store } from '../../../src/cluster/store/store.ts';
import type { AnyObject, Resource } from '../../../src/model/objects.ts';
import { resources } from '../../../src/model/objects.ts';
import { runToEnd } from '../../../src/model/run-to-end.ts';
import { releases } from '../../../src/shadow/release.ts';
import {
  contextOf,
  endpoint,
  event,
  foreign,
  pod,
  service,
  slice,
  storeOf,
  times,
} from '../../build.ts';
import type { Step } from '../../random-cluster.ts';
import { eventsOf, steps } from '../../random-cluster.ts';

function serviceAuditorOf(context: AuditContext, window = 30): ServiceAuditor {
  return createServiceAuditor({ context, settle: createPendingFindings({ window, keep: 100 }) });
}

/**
 * Every known difference in one line, with what the input says of its cause and severity. Only
 * history knows that a slice was relabelled.
 */
function differencesOf(serviceAuditor: ServiceAuditor): string[] {
  const lines: string[] = [];
  for (const [key, { items }] of serviceAuditor.audited) {
    for (const [unit, found] of items) {
      for (const { difference } of found) {
        const { code, subject, expected, actual, severity, quiet } = difference;
        const cause = difference.cause === 'slice-relabelled' ? null : difference.cause;
        const shown = [code, subject, expected, actual, cause, severity, quiet];
        lines.push([key, unit, ...shown].join(' | '));
      }
    }
  }
  return lines.sort();
}

interface Followed {
  readonly store: Store;
  readonly serviceAuditor: ServiceAuditor;
  readonly context: AuditContext;
}

interface Setting {
  /** How many steps the store takes before the auditor starts. */
  readonly head: number;
  readonly known: readonly Resource[];
  readonly context: Partial<AuditContext>;
}

function follow(all: readonly Step[], { head, known, context: more }: Setting): Followed {
  const store = storeOf([], known);
  const context = contextOf(store, more);
  const serviceAuditor = serviceAuditorOf(context);
  for (const [index, step] of all.entries()) {
    if (index === head) runToEnd(serviceAuditor.begin(index));
    for (const one of eventsOf(store, context, step, index + 1)) {
      if (!known.includes(one.resource)) continue;
      const change = store.apply(one);
      if (change !== null && index >= head) serviceAuditor.apply(change);
    }
  }
  if (head >= all.length) runToEnd(serviceAuditor.begin(head));
  return { store, serviceAuditor, context };
}

const numRuns = Number(process.env.RUNS ?? 1000);

const without = (...names: Resource[]): Resource[] =>
  resources.filter((one) => !names.includes(one));

const settings: fc.Arbitrary<Setting> = fc.record({
  head: fc.nat(12),
  known: fc.oneof(
    { weight: 4, arbitrary: fc.constant(without()) },
    fc.constantFrom(without('nodes'), without('endpoints'), without('endpointslices')),
  ),
  context: fc.record({
    release: fc.constantFrom(...releases),
    maxEndpointsPerSlice: fc.constantFrom(2, 100),
  }),
});

describe('following change by change', () => {
  test('finds the same as an auditor that starts at the end', () => {
    const property = fc.property(
      fc.array(steps, { minLength: 1, maxLength: 25 }),
      settings,
      (all, setting) => {
        const { serviceAuditor, context } = follow(all, setting);
        const fresh = serviceAuditorOf(context);
        runToEnd(fresh.begin(all.length));
        expect(differencesOf(serviceAuditor)).toEqual(differencesOf(fresh));
      },
    );
    fc.assert(property, { numRuns });
  });

  test('does not depend on the order in which objects arrive', () => {
    const property = fc.property(fc.array(steps, { maxLength: 25 }), settings, (all, setting) => {
      const { context } = follow(all, setting);
      const { services, pods, nodes, endpoints, slices } = context.listers;
      const objects = [services, pods, nodes, endpoints, slices].flatMap((map): AnyObject[] => [
        ...map.values(),
      ]);
      const [forward, backward] = [objects, objects.toReversed()].map((ordered) => {
        const serviceAuditor = serviceAuditorOf(
          contextOf(storeOf(ordered, setting.known), setting.context),
        );
        runToEnd(serviceAuditor.begin(1));
        return differencesOf(serviceAuditor);
      });
      expect(forward).toEqual(backward);
    });
    fc.assert(property, { numRuns });
  });
});

describe('the service auditor', () => {
  test('forgets a Service when all of its objects are deleted', () => {
    const property = fc.property(fc.array(steps, { maxLength: 25 }), settings, (all, setting) => {
      const { serviceAuditor, context, store } = follow(all, setting);
      const { services, pods, nodes, endpoints, slices } = context.listers;
      for (const map of [slices, endpoints, pods, services, nodes]) {
        for (const object of map.values() as Iterable<AnyObject>) {
          const change = store.apply(event('deleted', object, 100));
          if (change !== null) serviceAuditor.apply(change);
        }
      }
      serviceAuditor.settle.advance(1000);
      expect([...serviceAuditor.audited.keys()]).toEqual([]);
      expect(serviceAuditor.settle.open()).toEqual([]);
      expect(serviceAuditor.settle.nextAt()).toBeNull();
    });
    fc.assert(property, { numRuns });
  });

  test('has exactly one open finding for every output with a difference', () => {
    const property = fc.property(fc.array(steps, { maxLength: 25 }), settings, (all, setting) => {
      const { serviceAuditor } = follow(all, setting);
      serviceAuditor.settle.advance(1000);
      const differing = [...serviceAuditor.audited.entries()].flatMap(([key, { items }]) =>
        [...items.values()].flat().map(({ output }) => `${key} ${output}`),
      );
      const open = serviceAuditor.settle
        .open()
        .map(({ namespace, service, output }) => `${namespace}/${service} ${output}`);
      expect(new Set(open)).toEqual(new Set(differing));
    });
    fc.assert(property, { numRuns });
  });
});

describe('an unreadable object', () => {
  test('has no effect once it is readable again', () => {
    const lost = fc.record({
      resource: fc.constantFrom(...resources),
      namespace: fc.constantFrom('shop', null),
      name: fc.constantFrom('web', 'pod-1', null),
      labels: fc.constantFrom({ app: 'web' }, null),
    });
    const property = fc.property(
      fc.array(steps, { maxLength: 25 }),
      settings,
      lost,
      (all, setting, one) => {
        const { serviceAuditor, context } = follow(all, setting);
        const before = differencesOf(serviceAuditor);
        runToEnd(serviceAuditor.markUnreadable(one, 100));
        for (const line of differencesOf(serviceAuditor)) expect(before).toContain(line);
        runToEnd(serviceAuditor.markReadable(one, 110));
        expect(differencesOf(serviceAuditor)).toEqual(before);
        const fresh = serviceAuditorOf(context);
        runToEnd(fresh.begin(100));
        runToEnd(fresh.markUnreadable(one, 100));
        runToEnd(fresh.markReadable(one, 110));
        expect(differencesOf(fresh)).toEqual(before);
      },
    );
    fc.assert(property, { numRuns });
  });
});

test('a new slice with thousands of addresses is compared like one that existed before', () => {
  const one = '10.1.0.7';
  const many = foreign({
    endpoints: times(15, (at) =>
      endpoint({ ready: at > 0, addresses: times(100, (last) => `10.1.${at}.${last}`) }),
    ),
  });
  const listed = slice({ endpoints: [endpoint({ addresses: [one] })] });
  const there = [service(), pod({ ips: [one] }), listed];
  const store = storeOf(there);
  const serviceAuditor = serviceAuditorOf(contextOf(store));
  runToEnd(serviceAuditor.begin(0));
  const change = store.apply(event('added', many, 1));
  if (change !== null) serviceAuditor.apply(change);
  const fresh = serviceAuditorOf(contextOf(storeOf([...there, many])));
  runToEnd(fresh.begin(1));
  expect(differencesOf(serviceAuditor)).toEqual(differencesOf(fresh));
  expect(differencesOf(serviceAuditor).join()).toContain(`input ${one} | duplicate-conflicting`);
});
