// The reasons of differences: the texts of the catalogue, in groups, the worst first.

import { expect, test } from 'vitest';

import {
  itemReasons,
  itemText,
  severityOf,
  worstItemsFirst,
} from '../../../src/audit/explain/differences.ts';
import {
  counted,
  fewOf,
  reason,
  withRemediesOnce,
} from '../../../src/audit/explain/explanation.ts';
import {
  address,
  auditService,
  endpoint,
  endpoints,
  node,
  pod,
  service,
  slice,
  subset,
  times,
} from '../../build.ts';

const pods = times(5, (index) => pod({ name: `web-${index}`, ips: [`10.0.0.${index + 1}`] }));
const empty = slice({ endpoints: [], ports: [] });
const shopWeb = { namespace: 'shop', name: 'web' };
const absent = auditService([service(), node(), ...pods, endpoints({ subsets: [] }), empty]);

test('differences of equal code, object and cause share one reason', () => {
  const reasons = itemReasons(shopWeb, absent.items);
  expect(reasons.map(({ text }) => text)).toEqual([
    'A pod is missing from the Endpoints of its Service (endpoints-address-missing, ' +
      'pending: the controller may still write it)',
    'A pod is missing from the EndpointSlices of its Service (slice-endpoint-missing, ' +
      'pending: the controller may still write it)',
  ]);
  const [first] = reasons;
  expect(first?.differences.map(({ address: ip, actual }) => [ip, actual])).toEqual(
    times(5, (index) => [`10.0.0.${index + 1}`, null]),
  );
  expect(first?.change).toMatch(/^Check that kube-controller-manager runs/);
  expect(first?.commands).toContain(
    'kubectl -n shop annotate service/web endpoint-auditor-touched="$(date +%s)" --overwrite',
  );
});

test('a reason has the first ten differences, and counts the others', () => {
  const many = times(12, (index) => pod({ name: `web-${index}`, ips: [`10.0.0.${index + 1}`] }));
  const world = auditService([service(), node(), ...many, endpoints({ subsets: [] }), slice()]);
  const [first] = itemReasons(shopWeb, world.items);
  expect(first?.differences).toHaveLength(10);
  expect(first?.parts.map(({ text }) => text)).toContain('and 2 more differences');
});

test('a cause is named, with its cure as the change', () => {
  const stray = [subset(), subset([address({ ip: '10.9.9.9', target: null })])];
  const edited = auditService([service(), node(), pod(), endpoints({ subsets: stray }), slice()]);
  const [found] = itemReasons(shopWeb, edited.items);
  expect(found?.parts.at(-1)?.text).toMatch(/^likely cause.*\(hand-edited\)$/);
  const texts = edited.items.map(itemText);
  expect(texts[0]).toContain('Likely cause: Another client changed the object');
});

test('only open findings have a severity, and the worst counts', () => {
  expect(severityOf(absent.items)).toBeNull();
  absent.serviceAuditor.settle.advance(1000);
  expect(severityOf(absent.items)).toBe('warning');
  const wrong = slice({ endpoints: [endpoint({ addresses: ['10.9.9.9'] })] });
  const both = auditService([service(), node(), pod(), endpoints(), wrong]);
  both.serviceAuditor.settle.advance(1000);
  expect(severityOf(both.items)).toBe('critical');
  expect(worstItemsFirst(both.items)[0]?.severity).toBe('critical');
});

test('counts have a singular, and long lists are cut', () => {
  expect(counted(1, 'pod')).toBe('1 pod');
  expect(counted(2, 'address', 'addresses')).toBe('2 addresses');
  expect(fewOf(['a', 'b'])).toBe('a, b');
  expect(fewOf(['a', 'b', 'c', 'd', 'e'])).toBe('a, b, c and 2 more');
});

test('each change and each command is in an explanation once, with all commands for it', () => {
  const restart = (name: string) =>
    reason('no', name, { change: 'restart it', commands: ['get lease', `restart ${name}`] });
  const other = reason('no', 'c', {
    change: 'read the log',
    commands: ['get lease', 'logs c'],
    managed: 'open a ticket',
    parts: [{ ...restart('b'), managed: 'open a ticket' }],
  });
  const explanation = {
    subject: { kind: 'service', service: 'shop/web' },
    found: true,
    verdict: 'different',
    severity: 'warning',
    withoutEndpoints: null,
    answer: 'it is wrong',
    change: 'restart it',
    reasons: [restart('a'), other],
  } as const;
  const got = withRemediesOnce(explanation);
  expect(got).toMatchObject({
    change: 'restart it',
    commands: ['get lease', 'restart a', 'restart b'],
    managed: 'open a ticket',
    reasons: [
      { change: null, commands: [] },
      {
        change: 'read the log',
        commands: ['logs c'],
        managed: null,
        parts: [{ change: null, commands: [], managed: null }],
      },
    ],
  });
  expect(withRemediesOnce(explanation, ['get lease', 'first']).commands).toEqual([
    'get lease',
    'first',
    'restart a',
    'restart b',
  ]);
});
