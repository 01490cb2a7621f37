// The catalogue of incident kinds: what each claims, the evidence that it needs, what refutes it,
// how severe it can be, and what to do. docs/incidents.md is equal to this catalogue.
//
// An incident has the kind `cause-unknown` unless the evidence of another kind is complete.

import type { Severity } from '../finding/catalogue.ts';
import {
  advice,
  byController,
  getLog,
  listSlices,
  type RemedySteps,
  resync,
  resyncNode,
  restartProxy,
} from '../finding/remedy-steps.ts';

export interface KindEntry extends RemedySteps {
  readonly title: string;
  /** What the input must show for the kind to be claimed. */
  readonly evidence: string;
  /** What shows that the claim is wrong. */
  readonly refutation: string;
  /** The severity without a measured effect on traffic: `least` even if there is none. */
  readonly least: Severity;
}

/** Kinds of one cause in the order of their claims: a later one replaces an earlier one. */
export const kinds = {
  'controller-not-writing': {
    title: 'kube-controller-manager does not write endpoints',
    evidence:
      'At least two Services wait for a write of one controller, each after a change that the ' +
      'auditor saw. The controller has written nothing to any Service since the first of them ' +
      'began to wait. Controllers that wait with it are named too.',
    refutation: 'The controller writes to any Service.',
    least: 'warning',
    ...byController(
      'Read its log. If it runs and holds the lease, look for errors of the API server. Examples ' +
        'are exceeded quotas, admission webhooks that refuse EndpointSlices, and expired ' +
        'credentials.',
      getLog,
    ),
  },
  'controller-slow': {
    title: 'kube-controller-manager writes endpoints too late',
    evidence:
      'At least two Services have waited for a write of one controller for longer than the ' +
      'settle window. It writes to other Services, and at least half of its last writes came ' +
      'later than a third of the settle window.',
    refutation: 'The last writes of the controller came in time.',
    least: 'warning',
    ...byController(
      'Look for throttling in its log. Compare --concurrent-service-endpoint-syncs, ' +
        '--concurrent-endpoint-syncs and --kube-api-qps with the rate of changes. Check the ' +
        'latency of the API server and of etcd.',
      getLog,
    ),
  },
  'edited-by-someone': {
    title: 'Another client changed an object that a controller writes',
    evidence:
      'The object was as expected and changed while its input did not, or it lost the labels ' +
      'that assign it to the controller.',
    refutation: 'The controller wrote the object itself.',
    least: 'warning',
    ...byController(
      'Find the client in metadata.managedFields, and stop it. Then make the controller write ' +
        'the object again: add a label to the Service, and remove it.',
      'kubectl -n {namespace} get endpoints/{service} -o yaml --show-managed-fields',
      listSlices,
    ),
  },
  'node-change-unnoticed': {
    title: 'A Node changed, and the endpoint slices of its pods did not follow',
    evidence:
      'The Node was added, deleted or moved to another zone after the last event that triggers ' +
      'a sync of the Service.',
    refutation: 'The controller has synced the Service since the change.',
    least: 'info',
    ...resync,
  },
  'pod-change-unnoticed': {
    title: 'A pod changed, and the endpoints of its Services did not follow',
    evidence: 'A field of the pod changed that triggers no sync, and nothing else has since.',
    refutation: 'The controller has synced the Service since the change.',
    least: 'info',
    ...resync,
  },
  'sync-blocked': {
    title: 'An object blocks every sync of a Service',
    evidence: 'A selected pod has an address but no Node, so the API server refuses the Endpoints.',
    refutation: 'The pod has a Node, or no address.',
    least: 'warning',
    ...advice(
      'Let the scheduler bind the pod, or clear its address.',
      'kubectl -n {namespace} get pod -o wide --field-selector spec.nodeName=',
    ),
  },
  'upstream-limit': {
    title: 'A known limit of the controllers keeps an object as it is',
    evidence: 'The objects show one of the conditions that the findings of the incident name.',
    refutation: 'A sync of the Service writes the object.',
    least: 'info',
    ...resync,
  },
  'node-proxy-not-syncing': {
    title: 'kube-proxy on a node does not follow the cluster',
    evidence:
      'The rules of the node are correct for an earlier state of the Services that differ, and ' +
      'the node has followed no later change.',
    refutation: 'The rules implement a later change of another Service.',
    least: 'warning',
    ...restartProxy('First read its log.'),
  },
  'node-rules-lost': {
    title: 'Rules of kube-proxy on a node are missing or changed',
    evidence:
      'Packets through the rules of the node do not reach the endpoints that they should. No ' +
      'rule of another program decides that, and no earlier state of the cluster explains it.',
    refutation:
      'kube-proxy has another configuration than the auditor assumes, or most other nodes have ' +
      'the same difference.',
    least: 'warning',
    ...resyncNode,
  },
  'foreign-rules': {
    title: 'A rule of another program decides about packets of Services',
    evidence: 'The rule that drops, rejects or translates the packets is not one of kube-proxy.',
    refutation: 'The rule is gone, or kube-proxy wrote it.',
    least: 'info',
    ...advice(
      'Find the program that wrote the rule: a network policy, a firewall, or kube-proxy of ' +
        'another mode. Remove the rule there if it is not intended.',
      'kubectl get networkpolicies --all-namespaces',
    ),
  },
  'addresses-shared': {
    title: 'Two running pods have one address',
    evidence: 'Two running pods that do not use the network of their node report one address.',
    refutation: 'One of the pods has ended, or reports another address.',
    least: 'warning',
    ...advice(
      'Look for errors of the network plugin on the nodes of the pods. Remove the pod that ' +
        'should not have the address from its Services by changing its labels.',
      'kubectl get pods --all-namespaces -o wide --field-selector status.podIP={address}',
    ),
  },
  'service-configuration': {
    title: 'The configuration of a Service makes its endpoints wrong',
    evidence:
      'A removed selector left endpoints behind, several managers write slices, or an object ' +
      'has reached a limit.',
    refutation: 'The objects have changed.',
    least: 'info',
    ...advice(
      'Change the Service or its endpoints as its findings say.',
      'kubectl -n {namespace} get service/{service} -o yaml',
      listSlices,
    ),
  },
  'service-without-endpoints': {
    title: 'A Service cannot receive traffic because of its configuration',
    evidence:
      'Pods of the Service are ready, but the controller can make no endpoint of them. No ' +
      'container has the target port, no address has the IP family, the Nodes do not exist, or ' +
      'the Service has no ports. A Service without a matching pod never counts: it may be ' +
      'scaled to zero on purpose.',
    refutation: 'A slice of the Service lists a ready endpoint.',
    least: 'info',
    ...advice(
      'Compare ports, IP families and selector of the Service with its pods.',
      'endpoint-auditor explain service/{service} -n {namespace}',
      'kubectl -n {namespace} get service/{service} -o yaml',
    ),
  },
  'api-unavailable': {
    title: 'The API server does not deliver changes to the auditor',
    evidence: 'A watch that was established is interrupted for longer than five seconds.',
    refutation: 'Every watch delivers for five seconds.',
    least: 'warning',
    ...advice(
      'Check that the API server runs, and that the auditor can reach it and may watch.',
      "kubectl get --raw '/readyz?verbose'",
    ),
  },
  'agents-missing': {
    title: 'The rules of some nodes are unknown, because their agents do not report',
    evidence: 'A node has no agent, or its agent does not answer or answers with errors.',
    refutation: 'The agent of the node answers.',
    least: 'info',
    ...advice(
      'Check the DaemonSet of the agent and the pods of the named nodes.',
      'kubectl get pods --all-namespaces -o wide -l app.kubernetes.io/component=agent',
    ),
  },
  'cause-unknown': {
    title: 'The cause is unknown',
    evidence: 'No other kind has complete evidence.',
    refutation: 'Another kind has complete evidence.',
    least: 'info',
    ...advice(
      'Read the findings of the incident, and check the likely causes in their order.',
      getLog,
    ),
  },
} as const satisfies Readonly<Record<string, KindEntry>>;

export type IncidentKind = keyof typeof kinds;

export const incidentKinds = Object.keys(kinds) as IncidentKind[];
