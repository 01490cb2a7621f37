import fc from 'fast-check';
import { expect, test } from 'vitest';

import type { Journey } from '../../../src/audit/measure/journey.ts';
import { journeyQualities } from '../../../src/audit/measure/journey.ts';
import type { SpanPlan } from '../../../src/output/traces/otel.ts';
import { planTrace } from '../../../src/output/traces/otel.ts';
import { journeyOf, moment, stageOf, usualStages } from '../samples.ts';

/** Milliseconds from `moment`, so that tables can be read. */
function line({ name, start, end }: SpanPlan): string {
  const at = (time: number): string => String(Math.round((time - moment) * 1000));
  return `${name}: ${at(start)} to ${at(end)}`;
}

function linesOf(journey: Journey, endedAt = moment + 60): string[] {
  const { root, stages } = planTrace(journey, endedAt);
  return [root, ...stages].map(line);
}

test('a journey is one trace, and each stage starts at its input', () => {
  expect(linesOf(journeyOf())).toEqual([
    'endpoint add: 0 to 900',
    'pod seen: 0 to 500',
    'Endpoints written: 500 to 625',
    'EndpointSlice written: 500 to 750',
    'node programmed: 750 to 900',
  ]);
});

test('attributes are those of the conventions, and ours', () => {
  const { root, stages } = planTrace(journeyOf(), moment + 60);
  expect(root.attributes).toEqual({
    'k8s.namespace.name': 'shop',
    'k8s.service.name': 'web',
    'k8s.pod.name': 'web-1',
    'k8s.pod.uid': 'uid-web-1',
    'k8s.pod.ip': '10.0.0.1',
    'k8s.node.name': 'node-a',
    'k8s.service.endpoint.address_type': 'IPv4',
    'endpoint_auditor.operation': 'add',
    'endpoint_auditor.quality': 'coarse',
    'endpoint_auditor.end': 'complete',
    'endpoint_auditor.nodes': 1,
  });
  expect(stages.map(({ attributes }) => attributes)).toEqual([
    {
      'k8s.namespace.name': 'shop',
      'k8s.service.name': 'web',
      'endpoint_auditor.object': 'Pod shop/web-1',
      'endpoint_auditor.resource_version': '100',
    },
    {
      'k8s.namespace.name': 'shop',
      'k8s.service.name': 'web',
      'endpoint_auditor.object': 'Endpoints shop/web',
      'endpoint_auditor.resource_version': '101',
    },
    {
      'k8s.namespace.name': 'shop',
      'k8s.service.name': 'web',
      'endpoint_auditor.object': 'EndpointSlice shop/web-abcde',
      'endpoint_auditor.resource_version': '102',
    },
    {
      'k8s.namespace.name': 'shop',
      'k8s.service.name': 'web',
      'endpoint_auditor.object': 'Node node-b',
      'k8s.node.name': 'node-b',
      'endpoint_auditor.within_seconds': 0.1,
    },
  ]);
});

test('an unknown value has no attribute, and an IPv6 address has its type', () => {
  const bare = journeyOf({ podNode: '', addresses: [] });
  const unknown = planTrace(bare, moment).root.attributes;
  expect(unknown['k8s.node.name']).toBeUndefined();
  expect(unknown['k8s.pod.ip']).toBeUndefined();
  const { attributes } = planTrace(journeyOf({ addresses: ['fd00::1'] }), moment).root;
  expect(attributes['k8s.service.endpoint.address_type']).toBe('IPv6');
});

test('a stage without an object or a version has no writing', () => {
  const { root, stages } = planTrace(journeyOf(), moment);
  expect([root, ...stages].map(({ writing }) => writing)).toEqual([
    null,
    'Pod shop/web-1 100',
    'Endpoints shop/web 101',
    'EndpointSlice shop/web-abcde 102',
    null,
  ]);
});

test('a journey that did not come to its end lasts until it ended', () => {
  const overtaken = journeyOf({ end: 'overtaken', stages: usualStages.slice(0, 2) });
  expect(linesOf(overtaken, moment + 20)).toEqual([
    'endpoint add: 0 to 20000',
    'pod seen: 0 to 500',
    'Endpoints written: 500 to 625',
  ]);
});

test.each(['gap', 'skewed'] as const)('quality %s: it begins with the arrival', (quality) => {
  for (const begun of [moment - 86_400, moment + 5]) {
    const [root, seen] = linesOf(journeyOf({ quality, begun }));
    expect(root).toBe('endpoint add: 500 to 900');
    expect(seen).toBe('pod seen: 500 to 500');
  }
});

test('a stage that was reached before the change arrived takes no time', () => {
  const early = stageOf({ stage: 'endpointslices', at: moment + 0.4, within: null });
  expect(linesOf(journeyOf({ stages: [stageOf(), early] }))).toEqual([
    'endpoint add: 0 to 500',
    'pod seen: 0 to 500',
    'EndpointSlice written: 400 to 400',
  ]);
});

const at = fc.double({ min: moment - 1000, max: moment + 1000, noNaN: true });

const arbitrary = fc.record({
  begun: at,
  endedAt: at,
  quality: fc.constantFrom(...journeyQualities),
  end: fc.constantFrom('complete', 'overtaken', 'gone', 'dropped'),
  times: fc.array(at, { minLength: 1, maxLength: 8 }),
  operation: fc.constantFrom('add', 'remove', 'update'),
});

test('no span is negative or outside its trace, for any clocks', () => {
  fc.assert(
    fc.property(arbitrary, ({ times, endedAt, ...more }) => {
      const kinds = ['arrival', 'endpoints', 'endpointslices'] as const;
      const stages = times.map((time, index) =>
        stageOf({ stage: kinds[index] ?? 'node', at: time }),
      );
      const { root, stages: spans } = planTrace(journeyOf({ ...more, stages }), endedAt);
      expect(spans.length).toBe(stages.length);
      for (const [index, { start, end }] of spans.entries()) {
        expect(end).toBe(times[index]);
        expect(start).toBeLessThanOrEqual(end);
        expect(start).toBeGreaterThanOrEqual(root.start);
        expect(end).toBeLessThanOrEqual(root.end);
      }
    }),
  );
});
