import { describe, expect, test } from 'vitest';

import { isResolved, parseTarget, resolveTarget } from '../../../src/audit/explain/target.ts';
import { pod, service, storeOf } from '../../build.ts';

const nothing = { pod: null, service: null, address: null, node: null, port: null };

describe('words', () => {
  test.each([
    [['service/web'], { service: 'shop/web' }],
    [['svc/bank/web'], { service: 'bank/web' }],
    [['pod/a', 'service/web'], { pod: 'shop/a', service: 'shop/web' }],
    [['ip/fd00::1'], { address: 'fd00::1' }],
    [['node/n', 'service/web:http'], { node: 'n', service: 'shop/web', port: 'http' }],
    [['node/n'], { node: 'n' }],
    [['SVC/web', 'no/n'], { node: 'n', service: 'shop/web' }],
  ])('%j', (words, want) => {
    expect(parseTarget(words, 'shop')).toEqual({ ...nothing, ...want });
  });

  test.each([
    [[]],
    [['web']],
    [['deployment/web']],
    [['constructor/web']],
    [['pod/']],
    [['pod/a', 'pod/b']],
    [['ip/10.0.0.1', 'pod/a']],
    [['pod/a/b/c']],
    [['node/a/b', 'service/web']],
    [['node/n', 'pod/a', 'service/web']],
    [['ip/1.2.3']],
    [['ip/10.0.0.1/24']],
  ])('%j is refused', (words) => {
    expect(() => parseTarget(words, null)).toThrow('Expected service/NAME');
  });
});

describe('names without a namespace', () => {
  const { listers } = storeOf([
    service(),
    service({ namespace: 'bank' }),
    pod(),
    service({ namespace: 'bank', name: 'only' }),
  ]);
  const meant = (...words: string[]) => resolveTarget(parseTarget(words, null), listers);

  test('a name that one namespace has needs no namespace', () => {
    expect(isResolved(meant('service/only'))).toBe(true);
    expect(meant('service/only')).toEqual({ kind: 'service', service: 'bank/only' });
    expect(meant('node/n', 'service/only:x')).toEqual({
      kind: 'node',
      node: 'n',
      service: 'bank/only',
      port: 'x',
    });
  });

  test('a name that two namespaces have is refused', () => {
    expect(() => meant('service/web')).toThrow('bank/web have that name: choose one with -n');
  });

  test('the namespace of the pod wins for its Service', () => {
    expect(meant('pod/web-1', 'service/web')).toEqual({
      kind: 'pair',
      pod: 'shop/web-1',
      service: 'shop/web',
    });
  });

  test.each([
    [['service/no'], { kind: 'service', service: '*/no' }],
    [['pod/no'], { kind: 'pod', pod: '*/no' }],
    [['node/n', 'svc/no'], { kind: 'node', node: 'n', service: '*/no', port: null }],
    [['pod/no', 'svc/only'], { kind: 'pair', pod: '*/no', service: 'bank/only' }],
    [['service/*/only'], { kind: 'service', service: '*/only' }],
    [['pod/*/web-1', 'service/only'], { kind: 'pair', pod: '*/web-1', service: 'bank/only' }],
  ])('%j is not there', (words, want) => {
    const target = meant(...words);
    expect(isResolved(target)).toBe(false);
    expect(target).toEqual(want);
  });
});
