// Explains a node as a whole: how old its rules are, how kube-proxy or Cilium is configured, the
// findings on it, and the Services that it does not forward correctly.

import type { ProxyConfig } from '../../model/proxy-config.ts';
import { remedyOf } from '../finding/remedies.ts';
import { worstVerdict } from '../finding/verdicts.ts';
import type { NodeVerdict } from '../node/node-state.ts';
import { serviceOfPort } from '../node/service-health.ts';
import type { ServiceAuditor } from '../service/auditor.ts';
import type { VerdictInput } from '../service/verdict.ts';
import { nodeFindingReason, suppressedNotes } from './differences.ts';
import type { ExplanationBody, Reason } from './explanation.ts';
import { counted, fewOf, firstReasons, note, reason } from './explanation.ts';
import { findingsAt, type NodeLookup, severityOfWorst, whyUnknown } from './node.ts';

/** Findings and Services that the explanation names; the others are counted. */
const mostNamed = 10;

/** Explains an existing node. */
export function explainWholeNode(
  { listers }: VerdictInput,
  auditor: ServiceAuditor,
  name: string,
  lookup: NodeLookup | null,
): ExplanationBody {
  const ports = lookup?.verdicts.get(name) ?? null;
  const unknown = whyUnknown(ports, ports ?? []);
  const findings = findingsAt(auditor, name, null);
  const [worst] = findings;
  const verdict = worstVerdict((ports ?? []).map((port) => port.verdict)) ?? 'unknown';
  const node = listers.nodes.get(name);
  const place = node === undefined || node.zone === '' ? [] : [`zone ${node.zone}`];
  const state = node === undefined ? [] : [node.ready ? 'Ready' : 'not Ready', ...place];
  return {
    verdict,
    severity: severityOfWorst(worst),
    answer: answerOf(name, verdict, ports ?? [], unknown),
    change: worst === undefined ? null : remedyOf(worst).text,
    reasons: [
      ...(unknown === null ? [] : [reason('unknown', unknown, { object: `Node ${name}` })]),
      ...(state.length === 0 ? [] : [note(`Node ${name}: ${state.join(', ')}`)]),
      ...readingReasons(name, lookup),
      ...firstReasons(
        findings,
        mostNamed,
        (finding) => [nodeFindingReason(finding, true), ...suppressedNotes(finding)],
        (rest) => counted(rest, 'more finding'),
      ),
      ...affectedReasons(ports ?? []),
    ],
  };
}

function answerOf(
  name: string,
  verdict: NodeVerdict['verdict'],
  ports: readonly NodeVerdict[],
  unknown: string | null,
): string {
  const all = ports.filter(({ port }) => port !== '');
  const wrong = all.filter((port) => port.verdict === 'different').length;
  if (wrong > 0) {
    const total = counted(all.length, 'Service port');
    return `Node ${name} does not forward ${wrong} of ${total} correctly`;
  }
  if (verdict === 'unknown') {
    return `It is unknown how Node ${name} forwards Services: ${unknown ?? 'no rules are known'}`;
  }
  if (verdict === 'conform') {
    const ports =
      all.length === 1 ? 'its only Service port' : `all of its ${all.length} Service ports`;
    return `Node ${name} forwards ${ports} correctly`;
  }
  return `The rules of Node ${name} differ from what the objects require`;
}

function readingReasons(name: string, lookup: NodeLookup | null): Reason[] {
  const { age, proxy } = lookup?.reading(name) ?? { age: null, proxy: null };
  const read = age === null ? [] : [note(`its rules were read ${Math.round(age)} s before`)];
  if (proxy === null) return read;
  return [...read, note(settingsOf(proxy).join(', '))];
}

/** How the program that forwards on the node is configured. */
function settingsOf(proxy: ProxyConfig): string[] {
  const { mode, minor, detectLocalMode, masqueradeAll, nodePortAddresses, cilium } = proxy;
  if (cilium !== null) {
    const topology = cilium.serviceTopology === true ? 'enable-service-topology' : [];
    const { algorithm, mode: forwarding } = cilium;
    return [
      'Cilium',
      `bpf-lb-algorithm ${algorithm}`,
      `bpf-lb-mode ${forwarding}`,
      topology,
    ].flat();
  }
  return [
    `kube-proxy 1.${minor} in ${mode} mode`,
    `detectLocalMode ${detectLocalMode}`,
    masqueradeAll ? 'masqueradeAll' : [],
    nodePortAddresses.length === 0 ? [] : `nodePortAddresses ${nodePortAddresses.join(' ')}`,
  ].flat();
}

/** The Services with a port that is not forwarded correctly. */
function affectedReasons(ports: readonly NodeVerdict[]): Reason[] {
  const wrong = ports.filter(({ port, verdict }) => port !== '' && verdict === 'different');
  const services = [...new Set(wrong.map(({ port }) => serviceOfPort(port)))].sort();
  if (services.length === 0) return [];
  const names = fewOf(services, mostNamed);
  return [note(`Services that it does not forward correctly: ${services.length}: ${names}`)];
}
