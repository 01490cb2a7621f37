// Reads a KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1, with the defaults of
// pkg/proxy/apis/config/v1alpha1 and cmd/kube-proxy/app/server_linux.go, kubernetes@v1.36.3. Left
// out: command-line flags, which a configuration file overrides.

import type { ProxyConfig } from '../../model/proxy-config.ts';
import { defaultProxyConfig, minorIn, proxyModes } from '../../model/proxy-config.ts';
import type { Fields } from './json-fields.ts';
import {
  isFields,
  oneOf,
  optionalFlag,
  optionalText,
  text,
  texts,
  within,
  WrongType,
} from './json-fields.ts';

/** Of a kube-proxy of a version such as `v1.36.3`; throws WrongType for what it would not take. */
export function readProxyConfig(raw: unknown, version: string): ProxyConfig {
  if (!isFields(raw)) throw new WrongType('', 'an object', raw);
  const minor = minorIn(version);
  if (minor === null) throw new WrongType('version', 'a version of kube-proxy', version);
  const mode = oneOf(raw, 'mode', proxyModes, 'iptables');
  const defaults = defaultProxyConfig(mode, minor);
  const nodePortAddresses = texts(raw, 'nodePortAddresses');
  const section = mode === 'nftables' ? 'nftables' : 'iptables';
  const localhostNodePorts = within(raw, 'iptables', (part) =>
    optionalFlag(part, 'localhostNodePorts'),
  );
  return {
    ...defaults,
    detectLocalMode: text(raw, 'detectLocalMode') || defaults.detectLocalMode,
    clusterCIDRs: text(raw, 'clusterCIDR').split(',').filter(Boolean),
    bridgeInterface: within(raw, 'detectLocal', (part) => text(part, 'bridgeInterface')),
    interfaceNamePrefix: within(raw, 'detectLocal', (part) => text(part, 'interfaceNamePrefix')),
    nodePortAddresses:
      nodePortAddresses.length > 0 ? nodePortAddresses : defaults.nodePortAddresses,
    masqueradeAll: within(raw, section, (part) => optionalFlag(part, 'masqueradeAll')) ?? false,
    localhostNodePorts: localhostNodePorts ?? defaults.localhostNodePorts,
    bindAddress: optionalText(raw, 'bindAddress') ?? defaults.bindAddress,
    featureGates: within(raw, 'featureGates', featureGates),
  };
}

function featureGates(gates: Fields): Record<string, boolean> {
  return Object.fromEntries(
    Object.keys(gates).map((name) => [name, optionalFlag(gates, name) ?? false]),
  );
}
