// Every field counts, and nothing but equality: two copies are equal, and any one change makes them
// differ.

import { describe, expect, test } from 'vitest';

import {
  equalEndpoints,
  equalOwners,
  equalPorts,
  equalRefs,
  equalTexts,
  isSameToHints,
} from '../../src/model/equality.ts';
import type { Endpoint, Node, ObjectRef, OwnerReference, Port } from '../../src/model/objects.ts';
import { endpoint, node, owner, port, target } from '../build.ts';

describe('equalTexts', () => {
  const cases: [string[] | null, string[] | null, boolean][] = [
    [null, null, true],
    [null, [], false],
    [[], null, false],
    [[], [], true],
    [['a'], ['a'], true],
    [['a', 'b'], ['b', 'a'], false],
    [['a'], ['a', 'b'], false],
    [['a', 'b'], ['a'], false],
  ];
  test.each(cases)('%j and %j: %s', (a, b, want) => {
    expect(equalTexts(a, b)).toBe(want);
  });
});

describe('equalRefs', () => {
  test('copies are equal, and none is equal to none', () => {
    expect(equalRefs(target(), target())).toBe(true);
    expect(equalRefs(null, null)).toBe(true);
    expect(equalRefs(target(), null)).toBe(false);
    expect(equalRefs(null, target())).toBe(false);
  });

  const others: Partial<ObjectRef>[] = [
    { kind: 'Node' },
    { namespace: 'other' },
    { name: 'web-2' },
    { uid: 'another' },
  ];
  test.each(others)('%j is another object', (more) => {
    expect(equalRefs(target(), target('web-1', more))).toBe(false);
  });
});

describe('equalPorts', () => {
  const others: Partial<Port>[] = [
    { name: null },
    { name: '' },
    { protocol: 'UDP' },
    { port: 8081 },
    { port: null },
    { appProtocol: 'h2c' },
  ];
  test.each(others)('%j is another port', (more) => {
    expect(equalPorts([port()], [port(more)])).toBe(false);
  });

  test('copies are equal, in the same order and number', () => {
    const dns = port({ name: 'dns' });
    expect(equalPorts([port(), dns], [port(), port({ name: 'dns' })])).toBe(true);
    expect(equalPorts([port(), dns], [dns, port()])).toBe(false);
    expect(equalPorts([port()], [port(), dns])).toBe(false);
    expect(equalPorts([port(), dns], [port()])).toBe(false);
  });
});

describe('equalOwners', () => {
  const others: Partial<OwnerReference>[] = [
    { apiVersion: 'v2' },
    { kind: 'Endpoints' },
    { name: 'other' },
    { uid: 'another' },
    { controller: false },
  ];
  test.each(others)('%j is another owner', (more) => {
    expect(equalOwners([owner()], [{ ...owner(), ...more }])).toBe(false);
  });

  test('copies are equal, in the same number', () => {
    expect(equalOwners([owner()], [owner()])).toBe(true);
    expect(equalOwners([owner()], [])).toBe(false);
  });
});

describe('equalEndpoints', () => {
  test('copies are equal', () => {
    const hinted = { forZones: ['zone-a'], forNodes: ['node-a'] };
    expect(equalEndpoints(endpoint(hinted), endpoint({ ...hinted, forZones: ['zone-a'] }))).toBe(
      true,
    );
  });

  const others: { readonly [F in keyof Endpoint]: Endpoint[F] } = {
    addresses: ['10.0.0.2'],
    ready: null,
    serving: null,
    terminating: null,
    hostname: 'web-1',
    node: 'node-b',
    zone: 'zone-b',
    target: null,
    forZones: [],
    forNodes: [],
  };
  test.each(Object.entries(others))('%s counts', (field, value) => {
    expect(equalEndpoints(endpoint(), { ...endpoint(), [field]: value })).toBe(false);
  });
});

describe('isSameToHints', () => {
  const others: Partial<Node>[] = [
    { zone: 'zone-b' },
    { ready: false },
    { cpuMillis: 1 },
    { controlPlane: true },
  ];
  test.each(others)('%j counts', (more) => {
    expect(isSameToHints(node(), node(more))).toBe(false);
  });

  test('nothing else does, and no Node is none', () => {
    expect(isSameToHints(node(), node({ at: 9, resourceVersion: '9', labels: { a: 'b' } }))).toBe(
      true,
    );
    expect(isSameToHints(null, null)).toBe(true);
    expect(isSameToHints(node(), null)).toBe(false);
    expect(isSameToHints(null, node())).toBe(false);
  });
});
