// The backends that Cilium takes from the slices of a Service, and those of them that one frontend
// uses: ParseEndpointSliceV1 of pkg/k8s/endpoints.go, convertEndpoints of
// pkg/loadbalancer/reflectors/conversions.go, DefaultSelectBackends of
// pkg/loadbalancer/writer/writer.go, and the counts of
// pkg/loadbalancer/reconciler/bpf_reconciler.go, cilium@v1.20.2.
//
// Differences from kube-proxy: every address of an endpoint counts; an endpoint without a node is
// local everywhere; a port without a name matches every port of its protocol; hints count only
// with `enable-service-topology` and a traffic distribution, and node hints never.
//
// One address in several slices with different conditions: Cilium keeps the one that it handles
// last, in the random order of a Go map. So there is a list of possible sets.

import { getOrInsert } from '../../model/collections.ts';
import { joinHostPort, parseIP } from '../../model/ip.ts';
import type { Endpoint, EndpointSlice, Node, Service } from '../../model/objects.ts';
import type { Protocol } from '../../model/proxy-config.ts';
import { distinct, possibleSets } from '../topology.ts';
import { ciliumAnnotation, type CiliumFrontend } from './service-frontends.ts';

export interface CiliumBackend {
  /** `ip:port` */
  readonly text: string;
  readonly ip: string;
  readonly family: 'IPv4' | 'IPv6';
  readonly protocol: Protocol;
  /** Without the empty name. */
  readonly portNames: readonly string[];
  /** '' if the endpoint has none. */
  readonly node: string;
  /** null without a zone of its own. */
  readonly forZones: readonly string[] | null;
  readonly state: 'active' | 'terminating' | 'other';
  /** null: the default. */
  readonly weight: number | null;
}

const protocols: Readonly<Record<string, Protocol>> = { TCP: 'tcp', UDP: 'udp', SCTP: 'sctp' };

/** isIngressDummyEndpoint: the operator writes it for an Ingress, which Cilium's proxy serves. */
const ingressDummy = '192.192.192.192:9999';

const noZones: readonly string[] = [];

/** The possible sets of backends of a Service; null: too many. */
export function backendSets(
  slices: readonly EndpointSlice[],
): readonly (readonly CiliumBackend[])[] | null {
  const [first, ...others] = slices.map(backendsIn);
  if (first === undefined || others.length === 0) return [first ?? []];
  const listed = new Map<string, CiliumBackend[]>();
  for (const backend of [first, ...others].flat()) {
    getOrInsert(listed, `${backend.text} ${backend.protocol}`, () => []).push(backend);
  }
  return possibleSets(Array.from(listed.values(), (all) => distinct(all, JSON.stringify)));
}

/** The last endpoint of a slice with an address counts. */
function backendsIn(slice: EndpointSlice): CiliumBackend[] {
  if (slice.addressType !== 'IPv4' && slice.addressType !== 'IPv6') return [];
  /** By address, and by protocol if there are several. */
  const found = new Map<string, CiliumBackend>();
  const names = new Map<string, Set<string>>();
  for (const { name, protocol, port } of slice.ports) {
    const known = protocols[protocol ?? 'TCP'];
    if (known === undefined || port === null) continue;
    getOrInsert(names, `${known} ${port}`, () => new Set()).add(name ?? '');
  }
  const places = [...names].map(([place, portNames]) => {
    const [protocol, port] = place.split(' ') as [Protocol, string];
    return { protocol, port: Number(port), portNames: [...portNames].filter(Boolean).sort() };
  });
  const weight = weightOf(slice);
  for (const endpoint of slice.endpoints) {
    for (const address of endpoint.addresses) {
      const ip = parseIP(address);
      if (ip === null) continue;
      for (const { protocol, port, portNames } of places) {
        const text = joinHostPort(ip.text, port);
        if (text === ingressDummy) continue;
        found.set(places.length === 1 ? text : `${text} ${protocol}`, {
          text,
          ip: ip.text,
          family: ip.family,
          protocol,
          weight,
          portNames,
          node: endpoint.node ?? '',
          forZones: endpoint.zone === null ? null : (endpoint.forZones ?? noZones),
          state: weight === 0 ? 'other' : stateOf(endpoint),
        });
      }
    }
  }
  return [...found.values()];
}

/** An unsigned number of 16 bits; 0 stops all traffic to the slice. */
function weightOf({ annotations }: EndpointSlice): number | null {
  const text = annotations[ciliumAnnotation.weight] ?? '';
  return /^\d{1,5}$/.test(text) && Number(text) < 65_536 ? Number(text) : null;
}

/** ParseEndpointConditionsV1: null is ready, serving and not terminating. */
function stateOf({ ready, serving, terminating }: Endpoint): CiliumBackend['state'] {
  if (ready ?? true) return 'active';
  return terminating === true && (serving ?? true) ? 'terminating' : 'other';
}

/** Where backends are selected. */
export interface CiliumPlace extends Pick<Node, 'name' | 'zone'> {
  /** enable-service-topology */
  readonly topology: boolean;
}

/** The backends that connections to a frontend use: active ones, else terminating ones. */
export function selectBackends(
  backends: readonly CiliumBackend[],
  service: Service,
  frontend: CiliumFrontend,
  scope: number,
  place: CiliumPlace,
): readonly CiliumBackend[] {
  const matching = backends.filter((backend) => matches(backend, frontend));
  const isOnlyLocal = usesLocal(service, frontend, scope);
  const usable = isOnlyLocal ? matching.filter((it) => isLocal(it, place)) : matching;
  const preferred = preferSameNode(matching, service, place) ?? preferZone(usable, service, place);
  const active = preferred.filter(({ state }) => state === 'active');
  return active.length > 0 ? active : preferred.filter(({ state }) => state === 'terminating');
}

/** matchesFrontend: a missing name on one side matches every name. */
export function matches(backend: CiliumBackend, frontend: CiliumFrontend): boolean {
  const { portNames, family, protocol } = backend;
  if (family !== frontend.family || protocol !== frontend.protocol) return false;
  const { portName } = frontend;
  return portName === '' || portNames.length === 0 || portNames.includes(portName);
}

/** An endpoint without a node is local. */
export const isLocal = ({ node }: CiliumBackend, { name }: Pick<Node, 'name'>): boolean =>
  node === '' || node === name;

/** shouldUseLocalBackends */
function usesLocal(service: Service, { kind }: CiliumFrontend, scope: number): boolean {
  const isInternal = kind === 'cluster IP' || scope === 1;
  const { internalTrafficPolicy, externalTrafficPolicy } = service;
  return (isInternal ? internalTrafficPolicy : externalTrafficPolicy) === 'Local';
}

/** null: the Service does not prefer its node, or has no active backend there. */
function preferSameNode(
  matching: readonly CiliumBackend[],
  service: Service,
  { topology, name }: CiliumPlace,
): readonly CiliumBackend[] | null {
  const isAsked = topology && distributionOf(service) === 'PreferSameNode';
  if (!isAsked) return null;
  const found = matching.filter(({ node, state }) => node === name && state === 'active');
  return found.length > 0 ? found : null;
}

function preferZone(
  usable: readonly CiliumBackend[],
  service: Service,
  { topology, zone }: CiliumPlace,
): readonly CiliumBackend[] {
  const isAsked = topology && zone !== '' && distributionOf(service) === 'PreferSameZone';
  if (!isAsked) return usable;
  const isHere = ({ forZones }: CiliumBackend): boolean => forZones?.includes(zone) === true;
  const active = usable.filter(({ state }) => state === 'active');
  const isHinted = active.every(({ forZones }) => forZones !== null && forZones.length > 0);
  return isHinted && active.some(isHere) ? usable.filter(isHere) : usable;
}

/** trafficDistribution; internalTrafficPolicy Local switches it off. */
export function distributionOf(service: Service): 'PreferSameZone' | 'PreferSameNode' | null {
  const { internalTrafficPolicy, trafficDistribution, topologyAuto } = service;
  if (internalTrafficPolicy === 'Local') return null;
  if (trafficDistribution === 'PreferSameNode') return 'PreferSameNode';
  const isZone = trafficDistribution === 'PreferClose' || trafficDistribution === 'PreferSameZone';
  return isZone || topologyAuto ? 'PreferSameZone' : null;
}
