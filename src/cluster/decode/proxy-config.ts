// Reads a KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1, with the defaults of
// pkg/proxy/apis/config/v1alpha1 and cmd/kube-proxy/app/server_linux.go, kubernetes@v1.36.3. Left
// out: command-line flags, which a configuration file overrides.

import type { ProxyConfig } from '../../model/proxy-config.ts';
import {
  defaultProxyConfig,
  isInterfaceName,
  minorIn,
  proxyModes,
} from '../../model/proxy-config.ts';
import * as json from './json-fields.ts';

/** Of a kube-proxy of a version such as `v1.36.3`; throws WrongType for what it would not take. */
export function readProxyConfig(raw: unknown, version: string): ProxyConfig {
  if (!json.isFields(raw)) throw new json.WrongType('', 'an object', raw);
  const minor = minorIn(version);
  if (minor === null) throw new json.WrongType('version', 'a version of kube-proxy', version);
  const mode = json.oneOf(raw, 'mode', proxyModes, 'iptables');
  const defaults = defaultProxyConfig(mode, minor);
  const nodePortAddresses = json.texts(raw, 'nodePortAddresses');
  const section = mode === 'nftables' ? 'nftables' : 'iptables';
  const localhostNodePorts = json.within(raw, 'iptables', (part) =>
    json.optionalFlag(part, 'localhostNodePorts'),
  );
  return {
    ...defaults,
    detectLocalMode: json.text(raw, 'detectLocalMode') || defaults.detectLocalMode,
    clusterCIDRs: json.text(raw, 'clusterCIDR').split(',').filter(Boolean),
    bridgeInterface: json.within(raw, 'detectLocal', (part) =>
      interfaceIn(part, 'bridgeInterface'),
    ),
    interfaceNamePrefix: json.within(raw, 'detectLocal', (part) =>
      interfaceIn(part, 'interfaceNamePrefix'),
    ),
    nodePortAddresses:
      nodePortAddresses.length > 0 ? nodePortAddresses : defaults.nodePortAddresses,
    masqueradeAll:
      json.within(raw, section, (part) => json.optionalFlag(part, 'masqueradeAll')) ?? false,
    localhostNodePorts: localhostNodePorts ?? defaults.localhostNodePorts,
    bindAddress: json.optionalText(raw, 'bindAddress') ?? defaults.bindAddress,
    featureGates: json.within(raw, 'featureGates', featureGates),
  };
}

/** Each packet to the node has it, so a long one would fill the memory. */
function interfaceIn(fields: json.Fields, name: string): string {
  const found = json.text(fields, name);
  if (isInterfaceName(found)) return found;
  throw new json.WrongType(name, 'the name of an interface', found);
}

function featureGates(gates: json.Fields): Record<string, boolean> {
  return Object.fromEntries(
    Object.keys(gates).map((name) => [name, json.optionalFlag(gates, name) ?? false]),
  );
}
