import { expect, test } from 'vitest';

import { readCiliumConfig } from '../../../src/cluster/decode/cilium-config.ts';
import { WrongType } from '../../../src/cluster/decode/json-fields.ts';
import { defaultCiliumConfig } from '../../../src/model/cilium-config.ts';

test('without flags the defaults of Cilium hold', () => {
  expect(readCiliumConfig({})).toEqual(defaultCiliumConfig());
});

test('flags are read as booleans and as text', () => {
  const raw = {
    'bpf-lb-algorithm': 'maglev',
    'bpf-lb-mode': 'hybrid',
    'enable-service-topology': 'true',
    'bpf-lb-source-range-all-types': true,
    'bpf-lb-external-clusterip': 'false',
    'node-port-range': '31000,32000',
    'k8s-service-proxy-name': 'cilium',
  };
  expect(readCiliumConfig(raw, ['172.18.0.2'])).toEqual({
    ...defaultCiliumConfig(),
    ...{ algorithm: 'maglev', mode: 'hybrid', serviceTopology: true, sourceRangeAllTypes: true },
    nodePortRange: [31_000, 32_000],
    serviceProxyName: 'cilium',
    nodePortAddresses: ['172.18.0.2'],
  });
});

test.each([
  [null, 'an object'],
  [{ 'bpf-lb-algorithm': 'other' }, 'random'],
  [{ 'bpf-lb-mode-annotation': 'yes' }, 'a boolean'],
  [{ 'node-port-range': '1' }, 'two ports'],
  [{ 'node-port-range': '9-1' }, 'two ports'],
])('%o is refused', (raw, message) => {
  expect(() => readCiliumConfig(raw)).toThrow(WrongType);
  expect(() => readCiliumConfig(raw)).toThrow(message);
});
