// Ports are equal as sets: neither order nor absence written in two ways may make them differ.

import { describe, expect, test } from 'vitest';

import type { UnreadableObject, Port } from '../../src/model/objects.ts';
import {
  isOutput,
  unreadableKey,
  outputResources,
  portKey,
  portMapKey,
  portText,
  resources,
} from '../../src/model/objects.ts';
import { port } from '../build.ts';

describe('portKey', () => {
  const base = port();
  const others: [string, Port][] = [
    ['name', port({ name: 'web' })],
    ['number', port({ port: 8081 })],
    ['protocol', port({ protocol: 'UDP' })],
    ['appProtocol', port({ appProtocol: 'h2c' })],
    ['no name', port({ name: null })],
    ['an empty name', port({ name: '' })],
    ['no number', port({ port: null })],
    ['a name that is a dash', port({ name: '-' })],
    ['a name with a quote and a space', port({ name: 'http" 8080' })],
  ];
  test.each(others)('%s makes another port', (_, other) => {
    expect(portKey(other)).not.toBe(portKey(base));
  });

  test('absent and empty differ in every field', () => {
    const keys = [null, ''].flatMap((value) => [
      portKey(port({ name: value })),
      portKey(port({ protocol: value })),
      portKey(port({ appProtocol: value })),
    ]);
    // The base has no appProtocol either, so six ports have five further keys.
    expect(new Set([...keys, portKey(base)]).size).toBe(6);
  });
});

describe('portMapKey', () => {
  const [http, https, dns] = [
    port(),
    port({ name: 'https', port: 8443 }),
    port({ name: 'dns', port: 53, protocol: 'UDP' }),
  ];
  const equal: [string, Port[], Port[]][] = [
    ['order', [http, https, dns], [dns, http, https]],
    ['one port', [http], [port()]],
    ['no ports', [], []],
  ];
  test.each(equal)('%s does not matter', (_, a, b) => {
    expect(portMapKey(a)).toBe(portMapKey(b));
  });

  const different: [string, Port[], Port[]][] = [
    ['a port more', [http], [http, https]],
    ['none and one', [], [http]],
    ['names exchanged', [http, https], [port({ port: 8443 }), port({ name: 'https' })]],
    ['one port twice', [http], [http, http]],
  ];
  test.each(different)('%s matters', (_, a, b) => {
    expect(portMapKey(a)).not.toBe(portMapKey(b));
  });
});

describe('portText', () => {
  const cases: [Partial<Port>, string][] = [
    [{}, 'http 8080/TCP'],
    [{ name: '' }, '8080/TCP'],
    [{ name: null }, '8080/TCP'],
    [{ appProtocol: 'h2c' }, 'http 8080/TCP (h2c)'],
    [{ port: null, protocol: null }, 'http null/null'],
  ];
  test.each(cases)('%j is %j', (more, want) => {
    expect(portText(port(more))).toBe(want);
  });
});

test('resources come with inputs before outputs, as an audit needs them', () => {
  const at = (name: (typeof resources)[number]): number => resources.indexOf(name);
  expect(new Set(resources).size).toBe(5);
  expect(at('nodes')).toBeLessThan(at('pods'));
  expect(at('services')).toBeLessThan(at('endpoints'));
  expect(at('pods')).toBeLessThan(at('endpointslices'));
});

test('outputs are what the controllers write', () => {
  expect(resources.filter(isOutput)).toEqual(outputResources);
});

test('lostKey distinguishes losses, whatever is known of their labels', () => {
  const lost = { resource: 'pods', namespace: 'shop', name: 'web-1' } as const;
  expect(unreadableKey({ ...lost, labels: {} } as UnreadableObject)).toBe(unreadableKey(lost));
  const others = [
    { ...lost, name: null },
    { ...lost, namespace: null },
  ];
  expect(new Set([lost, ...others].map(unreadableKey)).size).toBe(3);
});
