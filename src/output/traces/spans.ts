// Plans the trace of a journey, as plain data:
//
//   endpoint add ───────────────────────────────────────────────────────┐ from the pod's own time
//     pod seen ──────────┐                                              │ to the last stage
//                        ├ Endpoints written ──────┐                    │
//                        ├ EndpointSlice written ───────────┐           │
//                                                           ├ node programmed ─┐ …
//
// The beginning is by the clock of its writer, all other times by the auditor's clock
// (measure/journey.ts). If the two contradict each other, or a list hides the beginning, the trace
// begins with the arrival. There are few names of spans, so that a backend can group by them.

import type { Attributes } from '@opentelemetry/api';
import {
  ATTR_K8S_NAMESPACE_NAME,
  ATTR_K8S_NODE_NAME,
  ATTR_K8S_POD_IP,
  ATTR_K8S_POD_NAME,
  ATTR_K8S_POD_UID,
} from '@opentelemetry/semantic-conventions';

import type { Journey, JourneyStage, JourneyStageName } from '../../audit/measure/journey.ts';
import { lastOf } from '../../audit/measure/journey.ts';

/** Names of the incubating conventions, which the package asks to copy. */
const serviceName = 'k8s.service.name';
const addressType = 'k8s.service.endpoint.address_type';

/** A future span; times in Unix seconds. */
export interface SpanPlan {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  readonly attributes: Attributes;
  /** The writing at its end; spans of other journeys with the same writing are linked. */
  readonly writing: string | null;
}

const names: Readonly<Record<JourneyStageName, string>> = {
  arrival: 'pod seen',
  endpoints: 'Endpoints written',
  endpointslices: 'EndpointSlice written',
  node: 'node programmed',
};

const own = 'endpoint_auditor';

const stageAttributes = (
  { namespace, service }: Journey,
  { object, resourceVersion, node, within }: JourneyStage,
): Attributes => ({
  [ATTR_K8S_NAMESPACE_NAME]: namespace,
  [serviceName]: service,
  [`${own}.object`]: object || undefined,
  [`${own}.resource_version`]: resourceVersion || undefined,
  [ATTR_K8S_NODE_NAME]: node ?? undefined,
  [`${own}.within_seconds`]: Math.round((within ?? 0) * 1e6) / 1e6 || undefined,
});

function rootAttributes(journey: Journey): Attributes {
  const [address] = journey.addresses;
  return {
    [ATTR_K8S_NAMESPACE_NAME]: journey.namespace,
    [serviceName]: journey.service,
    [ATTR_K8S_POD_NAME]: journey.pod,
    [ATTR_K8S_POD_UID]: journey.uid,
    [ATTR_K8S_NODE_NAME]: journey.podNode || undefined,
    [ATTR_K8S_POD_IP]: address,
    [addressType]: address && (address.includes(':') ? 'IPv6' : 'IPv4'),
    [`${own}.operation`]: journey.operation,
    [`${own}.quality`]: journey.quality,
    [`${own}.end`]: journey.end ?? '',
    [`${own}.nodes`]: journey.nodes,
  };
}

/** Plans the trace of a journey that ended at `endedAt`, Unix seconds. */
export function planTrace(journey: Journey, endedAt: number) {
  const arrival = lastOf(journey, 'arrival')?.at ?? journey.begun;
  const isKnown = journey.quality !== 'gap' && journey.quality !== 'skewed';
  const begun = isKnown ? Math.min(journey.begun, arrival) : arrival;
  const written = lastOf(journey, 'endpointslices')?.at ?? arrival;
  const follows: Readonly<Record<JourneyStageName, number>> = {
    arrival: begun,
    endpoints: arrival,
    endpointslices: arrival,
    node: written,
  };
  const stages = journey.stages.map((stage): SpanPlan => {
    const { object, resourceVersion, at } = stage;
    return {
      name: names[stage.stage],
      start: Math.min(follows[stage.stage], at),
      end: at,
      attributes: stageAttributes(journey, stage),
      writing: object === '' || resourceVersion === '' ? null : `${object} ${resourceVersion}`,
    };
  });
  const last = journey.end === 'complete' ? begun : endedAt;
  const root: SpanPlan = {
    name: `endpoint ${journey.operation}`,
    start: Math.min(begun, ...stages.map(({ start }) => start)),
    end: Math.max(last, ...stages.map(({ end }) => end)),
    attributes: rootAttributes(journey),
    writing: null,
  };
  return { root, stages };
}
