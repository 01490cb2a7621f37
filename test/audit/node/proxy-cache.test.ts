// Earlier versions of Services, as changes arrive.

import { expect, test } from 'vitest';

import { createProxyCache } from '../../../src/audit/node/proxy-cache.ts';
import { endpoint, event, service, slice, storeOf, times } from '../../build.ts';

function begun() {
  const store = storeOf([service(), slice()]);
  const proxied = createProxyCache(store.listers);
  const give = (...change: Parameters<typeof event>): void => {
    const applied = store.apply(event(...change));
    if (applied !== null) proxied.apply(applied);
  };
  return { proxied, give };
}

const version = (n: number) =>
  slice({ resourceVersion: String(n), endpoints: [endpoint({ addresses: [`10.0.0.${n}`] })] });

test('a new cache has no earlier versions', () => {
  const { proxied } = begun();
  expect(proxied.past.size).toBe(0);
  expect([...proxied.slices.keys()]).toEqual(['shop/web']);
});

test('a change adds the earlier version with its end', () => {
  const { proxied, give } = begun();
  give('modified', version(100), 5);
  give('deleted', version(101), 6);
  const [first, second] = proxied.past.get('shop/web') ?? [];
  expect(first?.until).toBe(5);
  expect(first?.slices[0]?.endpoints[0]?.addresses).toEqual(['10.0.0.1']);
  expect(second?.slices[0]?.endpoints[0]?.addresses).toEqual(['10.0.0.100']);
  expect(proxied.slices.has('shop/web')).toBe(false);
  expect(proxied.revision()).toBe(2);
});

test('a deleted Service has an earlier version', () => {
  const { proxied, give } = begun();
  give('deleted', service({ resourceVersion: '9' }), 5);
  expect(proxied.past.get('shop/web')?.map(({ service }) => service?.name)).toEqual(['web']);
});

test('the number of earlier versions is limited', () => {
  const { proxied, give } = begun();
  for (const n of times(200, (n) => n + 10)) give('modified', version(n), n);
  const past = proxied.past.get('shop/web') ?? [];
  expect(past.length).toBe(64);
  expect(past.at(-1)?.until).toBe(209);
});

test('changes of the last ten minutes are cached', () => {
  const { proxied, give } = begun();
  for (const n of times(20_000, (n) => n + 10)) give('modified', version(n), n);
  const changes = proxied.changesSince(0);
  expect(changes.at(-1)).toMatchObject({ key: 'shop/web', at: 20_009, revision: 20_000 });
  expect(changes[0]?.at).toBeLessThanOrEqual(20_009 - 600);
  expect(changes.length).toBeLessThanOrEqual(600 + 1024);
  expect(proxied.changesSince(19_998).map(({ revision }) => revision)).toEqual([19_999, 20_000]);
});
