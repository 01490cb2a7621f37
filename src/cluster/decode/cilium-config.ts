// Reads flags of the Cilium agent, as the ConfigMap cilium-config has them. A value may be a
// boolean, or its text. Reference: pkg/loadbalancer/config.go, cilium@v1.20.2.

import type { CiliumConfig } from '../../model/cilium-config.ts';
import { defaultCiliumConfig } from '../../model/cilium-config.ts';
import * as json from './json-fields.ts';

/** Throws WrongType for what Cilium would not take. `nodePortAddresses` are no flag. */
export function readCiliumConfig(
  raw: unknown,
  nodePortAddresses: readonly string[] = [],
): CiliumConfig {
  if (!json.isFields(raw)) throw new json.WrongType('', 'an object', raw);
  const isSet = (name: string): boolean => flagOf(raw, name);
  const word = <T extends string>(name: string, words: readonly T[], other: T): T =>
    json.oneOf(raw, name, words, other);
  return {
    ...defaultCiliumConfig(),
    algorithm: word('bpf-lb-algorithm', ['random', 'maglev'], 'random'),
    mode: word('bpf-lb-mode', ['snat', 'dsr', 'hybrid'], 'snat'),
    serviceTopology: isSet('enable-service-topology'),
    sourceRangeAllTypes: isSet('bpf-lb-source-range-all-types'),
    externalClusterIP: isSet('bpf-lb-external-clusterip'),
    algorithmAnnotation: isSet('bpf-lb-algorithm-annotation'),
    modeAnnotation: isSet('bpf-lb-mode-annotation'),
    nodePortRange: rangeOf(raw),
    serviceProxyName: json.text(raw, 'k8s-service-proxy-name'),
    nodePortAddresses,
  };
}

function flagOf(raw: json.Fields, name: string): boolean {
  const value = raw[name] ?? false;
  if (value === true || value === 'true') return true;
  if (value === false || value === 'false') return false;
  throw new json.WrongType(name, 'a boolean', value);
}

/** `30000,32767`, or a list of both. */
function rangeOf(raw: json.Fields): CiliumConfig['nodePortRange'] {
  const name = 'node-port-range';
  const value = raw[name];
  if (value === undefined) return defaultCiliumConfig().nodePortRange;
  const texts: unknown[] = typeof value === 'string' ? value.split(/[,-]/) : [value].flat();
  const [low, high, ...more] = texts.map(Number);
  const isRange = low !== undefined && high !== undefined && low >= 0 && low <= high;
  if (isRange && more.length === 0) return [low, high];
  throw new json.WrongType(name, 'two ports', value);
}
