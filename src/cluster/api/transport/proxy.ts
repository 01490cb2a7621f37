// Which proxy leads to the API server where the kubeconfig names none: that of the environment, as
// for kubectl (k8s.io/apimachinery@v0.36.3 pkg/util/net/http.go), by the rules of
// golang.org/x/net@v0.49.0 http/httpproxy/proxy.go: HTTPS_PROXY for https and HTTP_PROXY for http,
// in capitals first; never for localhost and loopback, nor for what NO_PROXY names: addresses,
// ranges, domains with all below them (`.domain` only those), each with or without a port, or `*`.
// Domains in other alphabets are compared as NO_PROXY writes them.

import { isIP } from 'node:net';

import { isWithinAny, parseNetwork } from '../../../model/ip.ts';

export type Variables = Readonly<Record<string, string | undefined>>;

/** The URL of the proxy for a server such as `https://10.0.0.1:6443`; null: it needs none. */
export function proxyFor(server: string, variables: Variables): string | null {
  const { protocol, hostname, port } = new URL(server);
  const isSecure = protocol === 'https:';
  const variable = isSecure ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  const proxy = valueOf(variables, variable);
  const name = hostname.replace(/^\[|\]$/g, '');
  const isLoopback = name === 'localhost' || name === '::1' || isWithinNetwork(name, '127.0.0.0/8');
  if (proxy === '' || isLoopback) return null;
  const dialed = port === '' ? (isSecure ? '443' : '80') : port;
  const exempt = valueOf(variables, 'NO_PROXY').split(',');
  if (exempt.some((entry) => matches(entry.trim().toLowerCase(), name, dialed))) return null;
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(proxy) ? proxy : `http://${proxy}`;
  // The value is not repeated: it may have a password.
  if (!URL.canParse(url)) throw new Error(`${variable} is not the URL of a proxy`);
  return url;
}

function valueOf(variables: Variables, name: string): string {
  const upper = variables[name] ?? '';
  return upper === '' ? (variables[name.toLowerCase()] ?? '') : upper;
}

/** A network is an address, or one with the length of a prefix. */
function isWithinNetwork(name: string, network: string): boolean {
  const range = parseNetwork(network);
  return range !== null && isWithinAny(name, [range]);
}

/** Whether an entry of NO_PROXY names a host, whose name is without brackets. */
function matches(entry: string, name: string, port: string): boolean {
  if (entry === '*') return true;
  if (/\/\d{1,3}$/.test(entry)) return isWithinNetwork(name, entry);
  const { host, wanted } = split(entry);
  if (host === '' || (wanted !== '' && wanted !== port)) return false;
  if (isIP(host) !== 0) return isWithinNetwork(name, host);
  if (isIP(name) !== 0) return false;
  const domain = host.replace(/^\*(?=\.)/, '');
  return name.endsWith(domain.startsWith('.') ? domain : `.${domain}`) || name === domain;
}

/** The port is '' if there is none. */
function split(entry: string): { readonly host: string; readonly wanted: string } {
  if (isIP(entry) === 6) return { host: entry, wanted: '' };
  // Brackets are for an address with a port.
  const found = /^(?:\[(?<six>.*)\](?=:)|(?<name>[^:[]*))(?::(?<port>\d+))?$/.exec(entry)?.groups;
  return { host: found?.six ?? found?.name ?? '', wanted: found?.port ?? '' };
}
