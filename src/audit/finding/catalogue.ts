// The catalogue of findings: every code with its meaning and its remedy. A test keeps
// docs/findings.md equal to this catalogue and to that of the causes.
//
// A finding reports that an output differs from what the controllers should write (endpoints,
// endpointslices, mirrored, node), or that the input itself has a fault (input). Severity follows
// the effect on traffic: critical, it is lost or reaches a wrong pod; warning, it is or will be
// after another event, or metadata that clients rely on is wrong; info, no traffic is affected.

import type { Cause } from './causes.ts';

export type Output = 'endpoints' | 'endpointslices' | 'mirrored' | 'node' | 'input';
export type Severity = 'critical' | 'warning' | 'info';
export type DifferenceKind = 'missing' | 'unexpected' | 'different';

export interface CatalogueEntry {
  readonly output: Output;
  /** The usual severity; a finding may have another one if its effect differs. */
  readonly severity: Severity;
  readonly difference: DifferenceKind;
  readonly title: string;
  readonly meaning: string;
  readonly remedy: string;
  /** The upstream code that decides, with file and function. */
  readonly upstream: string;
}

/** The kind of an entry: `warning('endpoints', 'missing')`. */
const kindOf =
  <S extends Severity>(severity: S) =>
  <O extends Output>(output: O, difference: DifferenceKind) => ({ output, severity, difference });
const critical = kindOf('critical');
const warning = kindOf('warning');
const info = kindOf('info');

const endpointsController = 'pkg/controller/endpoint/endpoints_controller.go';
const sliceReconciler = 'k8s.io/endpointslice reconciler.go';
const sliceUtils = 'k8s.io/endpointslice utils.go';
const mirroringReconciler = 'pkg/controller/endpointslicemirroring/reconciler.go';

const resync =
  'Make the controller sync the Service again: change any annotation or label of the Service, or ' +
  'delete and recreate one of its pods. If it comes back, read the log of kube-controller-manager.';
const proxiers = 'pkg/proxy/iptables/proxier.go, pkg/proxy/nftables/proxier.go';
const resyncNode =
  'Restart kube-proxy on the node, which writes all rules anew. If it comes back, read its log ' +
  'and look for other programs that change rules.';
const seeRunning =
  'First see that kube-controller-manager runs and renews its lease: kubectl -n kube-system get ' +
  'lease kube-controller-manager. ';
const rewriteEndpoints =
  `${seeRunning}Then change an annotation of the Service. Delete the Endpoints last, and ` +
  'only while it runs: until it writes them anew, the Service has none. If it comes back, read ' +
  'its log.';
const rewriteSlice =
  `${seeRunning}Then change an annotation of the Service. Delete the EndpointSlice last, and ` +
  'only while it runs: until it writes it anew, endpoints get no traffic. If it comes back, ' +
  'read its log.';

export const catalogue = {
  'endpoints-missing': {
    ...warning('endpoints', 'missing'),
    title: 'The Endpoints object of a Service with a selector does not exist',
    meaning:
      'The controller keeps an Endpoints object for every Service with a selector, also for one ' +
      'without pods. Whoever reads Endpoints sees no such Service.',
    remedy: resync,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-orphaned': {
    ...info('endpoints', 'unexpected'),
    title: 'Endpoints that the controller wrote outlive their Service',
    meaning:
      'The label managed-by says that the controller wrote the object, but there is no Service ' +
      'of its name. It serves no traffic and is removed when the controller manager restarts.',
    remedy: 'Delete the Endpoints object.',
    upstream: `${endpointsController} checkLeftoverEndpoints`,
  },
  'endpoints-address-unexpected': {
    ...warning('endpoints', 'unexpected'),
    title: 'Endpoints list an address that no selected pod has',
    meaning:
      'The pod is gone, terminal, terminating, not selected, or never existed. Whoever reads ' +
      'Endpoints sends traffic to an address that is nobody’s or somebody else’s.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-address-missing': {
    ...warning('endpoints', 'missing'),
    title: 'A pod is absent from the Endpoints of its Service',
    meaning: 'The pod is selected and has an address and a port of the Service, but is not listed.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-address-different': {
    ...warning('endpoints', 'different'),
    title: 'An address in Endpoints names another pod, node or hostname',
    meaning: 'The address is right, what is said about it is not.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'endpoints-readiness-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints show a pod ready that is not, or the reverse',
    meaning: 'A ready pod stands in notReadyAddresses, or one that is not ready in addresses.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} addEndpointSubset`,
  },
  'endpoints-ports-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints list an address under other ports',
    meaning:
      'Name, number, protocol or appProtocol differ from what the Service means on this pod.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} endpointPortFromServicePort`,
  },
  'endpoints-labels-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints do not carry the labels of their Service',
    meaning:
      'Endpoints carry exactly the labels of the Service, the headless label where no cluster IP ' +
      'is set, and (since 1.33) managed-by.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} labelsCorrectForEndpoints`,
  },
  'endpoints-over-capacity-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints are not truncated as they must be, or are marked so without cause',
    meaning:
      'Above 1,000 addresses the object is cut to 1,000, ready ones first, and says so by the ' +
      'annotation endpoints.kubernetes.io/over-capacity: truncated.',
    remedy: rewriteEndpoints,
    upstream: `${endpointsController} truncateEndpoints`,
  },
  'slice-endpoint-missing': {
    ...warning('endpointslices', 'missing'),
    title: 'A pod is absent from the EndpointSlices of its Service',
    meaning: 'The pod is selected and should be listed, but no slice of the Service has it.',
    remedy: resync,
    upstream: `${sliceReconciler} reconcileByAddressType`,
  },
  'slice-endpoint-unexpected': {
    ...critical('endpointslices', 'unexpected'),
    title: 'A slice lists an endpoint that no selected pod has',
    meaning:
      'The pod is gone, terminal, not selected, or has another address. Nodes send traffic to an ' +
      'address that is nobody’s or somebody else’s, unless the endpoint is not ready.',
    remedy: rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-conditions-different': {
    ...warning('endpointslices', 'different'),
    title: 'An endpoint has other conditions than its pod',
    meaning:
      'ready, serving and terminating follow from the pod’s Ready condition, its deletion and ' +
      'publishNotReadyAddresses. Nodes send traffic to a pod that is not ready, or none to one ' +
      'that is.',
    remedy: resync,
    upstream: `${sliceUtils} podToEndpoint`,
  },
  'slice-endpoint-different': {
    ...warning('endpointslices', 'different'),
    title: 'An endpoint names another pod, node, zone or hostname',
    meaning: 'The address is right, what is said about it is not; zones steer traffic.',
    remedy: rewriteSlice,
    upstream: `${sliceUtils} podToEndpoint`,
  },
  'slice-ports-different': {
    ...critical('endpointslices', 'different'),
    title: 'An endpoint stands in a slice of other ports',
    meaning:
      'Name, number, protocol or appProtocol differ from what the Service means on this pod.',
    remedy: rewriteSlice,
    upstream: `${sliceUtils} getEndpointPorts`,
  },
  'slice-hints-different': {
    ...warning('endpointslices', 'different'),
    title: 'Topology hints are not what the Service asks for',
    meaning:
      'By trafficDistribution every ready endpoint has the hint of its own zone (and node); by ' +
      'topology-mode Auto all ready endpoints have one or none has; otherwise there are none.',
    remedy: resync,
    upstream: 'k8s.io/endpointslice trafficdist/trafficdist.go, topologycache/topologycache.go',
  },
  'slice-labels-different': {
    ...warning('endpointslices', 'different'),
    title: 'A slice does not carry the labels of its Service',
    meaning:
      'Slices carry the labels of the Service, service-name, managed-by, and the headless label ' +
      'where no cluster IP is set. A wrong service-name takes the slice away from its Service.',
    remedy: rewriteSlice,
    upstream: `${sliceUtils} setEndpointSliceLabels`,
  },
  'slice-owner-different': {
    ...warning('endpointslices', 'different'),
    title: 'A slice is not owned by its Service',
    meaning:
      'The owner reference is absent or names a Service of the same name that is gone. The ' +
      'garbage collector may delete the slice, or nobody will when the Service goes.',
    remedy: rewriteSlice,
    upstream: `${sliceUtils} ownedBy`,
  },
  'slice-family-unexpected': {
    ...warning('endpointslices', 'unexpected'),
    title: 'A slice has an address type that the Service does not have',
    meaning: 'The Service has no such IP family (any more); its slices of that family must go.',
    remedy: rewriteSlice,
    upstream: `${sliceReconciler} Reconcile`,
  },
  'slice-oversized': {
    ...warning('endpointslices', 'different'),
    title: 'A slice holds more endpoints than the controller puts into one',
    meaning:
      'The controller fills slices up to --max-endpoints-per-slice (100). If the control plane ' +
      'runs with another value, say so with --max-endpoints-per-slice.',
    remedy: rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-placeholder-missing': {
    ...warning('endpointslices', 'missing'),
    title: 'A Service without endpoints has no empty slice',
    meaning: 'The controller keeps one empty slice per address type where there are no endpoints.',
    remedy: resync,
    upstream: `${sliceReconciler} reconcileByAddressType`,
  },
  'slice-duplicate-conflicting': {
    ...warning('endpointslices', 'different'),
    title: 'One endpoint stands in two slices with different conditions',
    meaning: 'Nodes may take either; the next sync of the Service removes one.',
    remedy: rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-duplicate': {
    ...info('endpointslices', 'unexpected'),
    title: 'One endpoint stands in two slices with equal conditions',
    meaning: 'The API allows it and nodes count it once.',
    remedy: 'Nothing needs to be done; the next sync of the Service removes one.',
    upstream: 'k8s.io/api discovery/v1 types.go EndpointSlice',
  },
  'slice-surplus-empty': {
    ...info('endpointslices', 'unexpected'),
    title: 'An empty slice stands beside others',
    meaning: 'It serves no traffic; the next sync that changes endpoints removes or fills it.',
    remedy: 'Nothing needs to be done.',
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-orphaned': {
    ...warning('endpointslices', 'unexpected'),
    title: 'A slice of the controller outlives its Service',
    meaning: 'The Service it names does not exist; the garbage collector should have deleted it.',
    remedy: 'Delete the EndpointSlice and read the log of the garbage collector.',
    upstream: 'pkg/controller/garbagecollector',
  },
  'mirror-endpoint-missing': {
    ...warning('mirrored', 'missing'),
    title: 'An address of Endpoints is not mirrored',
    meaning: 'Nodes read slices only: they send no traffic to this address.',
    remedy:
      'Change an annotation of the Endpoints object, which makes the controller sync it again.',
    upstream: `${mirroringReconciler} reconcile`,
  },
  'mirror-endpoint-unexpected': {
    ...critical('mirrored', 'unexpected'),
    title: 'A mirrored slice lists an address that the Endpoints do not have',
    meaning: 'Nodes send traffic to an address that was removed.',
    remedy: rewriteSlice,
    upstream: `${mirroringReconciler} reconcileByPortMapping`,
  },
  'mirror-endpoint-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored endpoint names another node, hostname or target',
    meaning: 'nodeName, hostname and targetRef are copied from the Endpoints unchecked.',
    remedy: rewriteSlice,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go addressToEndpoint',
  },
  'mirror-conditions-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored endpoint has another readiness than its address in Endpoints',
    meaning: 'Mirrored endpoints have the condition ready and no other.',
    remedy: rewriteSlice,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go addressToEndpoint',
  },
  'mirror-ports-different': {
    ...critical('mirrored', 'different'),
    title: 'A mirrored endpoint stands in a slice of other ports',
    meaning: 'The ports differ from those of the Endpoints subset that lists the address.',
    remedy: rewriteSlice,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go epPortsToEpsPorts',
  },
  'mirror-labels-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored slice does not carry the labels of its Endpoints',
    meaning: 'Labels of the Endpoints are copied; service-name and managed-by are set.',
    remedy: rewriteSlice,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go newEndpointSlice',
  },
  'mirror-annotations-different': {
    ...info('mirrored', 'different'),
    title: 'A mirrored slice does not carry the annotations of its Endpoints',
    meaning: 'Annotations are copied, except last-applied-configuration and the trigger time.',
    remedy: rewriteSlice,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go newEndpointSlice',
  },
  'mirror-owner-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored slice is not owned by its Endpoints',
    meaning:
      'It is owned by an earlier object of the same name, which the controller puts right, or ' +
      'by none, which only an edit by hand leaves and the controller does not see.',
    remedy: rewriteSlice,
    upstream: `${mirroringReconciler} needRebuildExistingSlices`,
  },
  'mirror-slice-unexpected': {
    ...critical('mirrored', 'unexpected'),
    title: 'A mirrored slice stands where nothing must be mirrored',
    meaning:
      'The Endpoints are gone, carry skip-mirror or the leader annotation, or the Service is ' +
      'gone or has a selector.',
    remedy: 'Delete the EndpointSlice.',
    upstream:
      'pkg/controller/endpointslicemirroring/endpointslicemirroring_controller.go syncEndpoints',
  },
  'mirror-slice-duplicate': {
    ...info('mirrored', 'unexpected'),
    title: 'A mirrored slice stands that is one too many',
    meaning:
      'There is one mirrored slice per address type and port map that has endpoints; a second, ' +
      'or an empty one under other ports, adds nothing.',
    remedy: 'Nothing needs to be done; the next sync of the Endpoints deletes it.',
    upstream: `${mirroringReconciler} reconcileByPortMapping`,
  },
  'left-behind': {
    ...info('input', 'unexpected'),
    title: 'Endpoints or slices of a selector that is gone stay behind',
    meaning:
      'The selector was removed, or the type became ExternalName. The controllers stop and leave ' +
      'what they wrote; it is frozen from then on.',
    remedy: 'Delete what was left behind, or restore the selector.',
    upstream: `${endpointsController} syncService`,
  },
  'left-behind-dead': {
    ...warning('input', 'unexpected'),
    title: 'Addresses that were left behind belong to no living pod',
    meaning:
      'Nothing keeps them up to date: nodes send traffic to addresses that are nobody’s, or will ' +
      'be somebody else’s.',
    remedy: 'Delete the Endpoints and slices that were left behind, or restore the selector.',
    upstream: `${endpointsController} syncService`,
  },
  'address-shared': {
    ...warning('input', 'different'),
    title: 'Two living pods report one address',
    meaning:
      'Both are listed wherever they are selected, so traffic for one may reach the other. The ' +
      'finding stands at the Services of the pod that came to the address later, or, where no ' +
      'Service selects that pod, at those of the pod that was there first.',
    remedy: 'Find out which of the pods really has the address and delete the other.',
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'pod-without-node': {
    ...warning('input', 'different'),
    title: 'A selected pod has an address but no Node, which freezes the Endpoints',
    meaning:
      'The API server refuses Endpoints with an empty nodeName, so the object stays as it was, ' +
      'or is never made, for all pods of the Service. Slices leave the pod out and are well.',
    remedy: 'Delete the pod, or clear its address, or let the scheduler bind it.',
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'managers-several': {
    ...info('input', 'unexpected'),
    title: 'Somebody else writes slices for a Service with a selector',
    meaning: 'Nodes use all slices of a Service; those of another manager are not judged.',
    remedy: 'Make sure that the other manager is meant to be there.',
    upstream: 'k8s.io/api discovery/v1 well_known_labels.go LabelManagedBy',
  },
  'duplicate-conflicting': {
    ...warning('input', 'different'),
    title: 'Two managers list one endpoint with different conditions',
    meaning: 'Whether nodes use the address depends on which slice they read last.',
    remedy: 'Remove the address from the slices of one of the managers.',
    upstream: 'pkg/proxy/endpointslicecache.go',
  },
  'foreign-endpoint-dead': {
    ...info('input', 'unexpected'),
    title: 'A slice of another manager refers to a pod that does not exist',
    meaning: 'The slice is not ours to judge, but the pod it names is gone or was replaced.',
    remedy: 'Look at the manager that the label endpointslice.kubernetes.io/managed-by names.',
    upstream: 'k8s.io/api discovery/v1 well_known_labels.go LabelManagedBy',
  },
  'endpoints-truncated': {
    ...info('input', 'missing'),
    title: 'A Service has more addresses than an Endpoints object holds',
    meaning: 'Whoever reads Endpoints instead of slices sees 1,000 addresses and not the others.',
    remedy: 'Let clients read EndpointSlices.',
    upstream: `${endpointsController} truncateEndpoints`,
  },
  'object-near-size-limit': {
    ...warning('input', 'different'),
    title: 'An object is close to the size that the API server accepts',
    meaning: 'Requests over 1.5 MiB are refused: the object then freezes as it is.',
    remedy: 'Split the Service, or drop what makes the object large.',
    upstream: 'etcd --max-request-bytes',
  },
  'hints-absent': {
    ...info('input', 'missing'),
    title: 'topology-mode Auto is set, but there are no hints',
    meaning: 'Traffic is spread over all zones. The reason is named where the input shows it.',
    remedy: 'Use spec.trafficDistribution, which has no thresholds.',
    upstream: 'k8s.io/endpointslice topologycache/event.go',
  },
  'node-frontend-missing': {
    ...critical('node', 'missing'),
    title: 'A node does not serve a frontend of a Service',
    meaning:
      'Packets to the address and port go on untranslated, as if there were no Service, from ' +
      'some or all places that may use it.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-frontend-blocked': {
    ...critical('node', 'different'),
    title: 'A node rejects or drops packets for a frontend that has endpoints',
    meaning:
      'The rules stop connections that they must forward: the node believes that there are no ' +
      'endpoints, a rule is left over, or a policy of FORWARD or INPUT drops what nothing accepts.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-frontend-unexpected': {
    ...warning('node', 'unexpected'),
    title: 'A node answers for an address and port that no Service claims',
    meaning:
      'kube-proxy’s rules still forward what a Service had that is gone or has changed. Whoever ' +
      'gets the address next inherits the traffic.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-endpoint-missing': {
    ...critical('node', 'missing'),
    title: 'A node sends no connections to an endpoint that it must use',
    meaning:
      'The endpoint is usable from this node, but no packet reaches it: the others carry its ' +
      'share, or the share is lost.',
    remedy: resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-endpoint-unexpected': {
    ...critical('node', 'unexpected'),
    title: 'A node sends connections to a destination that is no endpoint of the Service',
    meaning:
      'The pod is gone, or the address or port was never an endpoint of this Service. ' +
      'Connections fail, or reach somebody else.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-policy-different': {
    ...warning('node', 'different'),
    title: 'A node uses an endpoint that traffic policy, hints, conditions or ranges exclude',
    meaning:
      'The destination is an endpoint of the Service, but not for these packets: another node ' +
      'has it, its zone is another, it is not ready, or the source may not use the frontend.',
    remedy: resyncNode,
    upstream: 'pkg/proxy/topology.go CategorizeEndpoints',
  },
  'node-share-different': {
    ...warning('node', 'different'),
    title: 'A node does not spread connections evenly over the endpoints',
    meaning:
      'All endpoints are used, but with other probabilities than one in so many, beyond the ' +
      'rounding that kube-proxy does itself.',
    remedy: resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-masquerade-missing': {
    ...critical('node', 'missing'),
    title: 'A node does not masquerade packets that it must masquerade',
    meaning:
      'The answer goes straight to the client, which knows nothing of the endpoint, so ' +
      'connections from such sources hang.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-masquerade-unexpected': {
    ...warning('node', 'unexpected'),
    title: 'A node masquerades packets whose source it must keep',
    meaning:
      'Endpoints see the address of the node and not of the client: network policies, source ' +
      'ranges and logs go wrong.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-affinity-different': {
    ...warning('node', 'different'),
    title: 'Session affinity on a node is not what the Service asks for',
    meaning:
      'Clients do not stay with their endpoint, stay for another time, or stay although the ' +
      'Service wants no affinity.',
    remedy: resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-reject-missing': {
    ...warning('node', 'missing'),
    title: 'A node does not reject or drop packets that it must stop',
    meaning:
      'There are no endpoints, none that the policy allows, or the source is forbidden, and the ' +
      'packets go on nevertheless, or are dropped where they must be rejected.',
    remedy: resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-foreign-rule': {
    ...critical('node', 'unexpected'),
    title: 'A rule that is not kube-proxy’s stands between a Service and its endpoints',
    meaning:
      'Another program’s rule, which is named, takes packets of the Service before kube-proxy’s ' +
      'rules do, or stops or changes them afterwards. It is information where the rule takes ' +
      'just this address and port out of connection tracking and the packets come through to the ' +
      'node itself, as NodeLocal DNSCache does on purpose.',
    remedy:
      'Find out who wrote the rule, and narrow it so that it leaves Services alone. Where it is ' +
      'information, look that something on the node listens at that address and port.',
    upstream: `${proxiers} iptablesJumpChains`,
  },
  'node-endpoint-blocked': {
    ...warning('node', 'unexpected'),
    title: 'A rule that is not kube-proxy’s stops packets to an endpoint, as network policies do',
    meaning:
      'kube-proxy’s rules send the packets on as they must, and another program’s rule, which is ' +
      'named, rejects or drops what is sent to the address of this one endpoint. That is what ' +
      'network policies look like, and most likely meant; but the Service sends connections ' +
      'there all the same, and they fail. It is information where the rule stands in a chain of ' +
      'kube-router’s or Calico’s policies.',
    remedy:
      'Look which network policy selects the pod. If it is not meant for clients of the Service, ' +
      'allow them; if it keeps a pod in quarantine, take the pod out of the Service, too.',
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-rules-flushed': {
    ...critical('node', 'missing'),
    title: 'The rules of kube-proxy are gone from a node',
    meaning:
      'Most Services do not work from this node, since no rule is there that forwards them: ' +
      'tables were flushed, or kube-proxy never ran.',
    remedy: 'Restart kube-proxy on the node, and find out what flushes the rules.',
    upstream: 'pkg/util/iptables/iptables.go Monitor',
  },
  'node-rules-unreachable': {
    ...critical('node', 'missing'),
    title: 'The rules of kube-proxy are there, but packets do not come to them',
    meaning:
      'The jumps from the built-in chains are missing, or something takes packets out before ' +
      'them: most Services do not work from some or all places.',
    remedy:
      'Restart kube-proxy on the node, which writes the jumps anew, and find out what removes ' +
      'them: in iptables they lead from PREROUTING and OUTPUT of table nat to KUBE-SERVICES.',
    upstream: `${proxiers} iptablesJumpChains`,
  },
  'node-rules-different': {
    ...critical('node', 'different'),
    title: 'The rules of a node are wrong for most Services in the same way',
    meaning:
      'What all Services have in common is broken: marks, masquerading, the way to node ports, ' +
      'or the policy of a chain. What is wrong is said for the first of them.',
    remedy: 'Restart kube-proxy on the node, and find out what changes its rules.',
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-backends-both': {
    ...info('node', 'unexpected'),
    title: 'Two sets of rules on a node translate for the same frontends',
    meaning:
      'Rules of iptables’ two backends, or of iptables and nftables mode, stand side by side at ' +
      'one priority. The one registered last runs first, which no dump tells: where they differ, ' +
      'what the node does is unknown.',
    remedy: 'Remove the rules of the mode or backend that kube-proxy no longer uses.',
    upstream: 'pkg/proxy/runner, cmd/kube-proxy/app/server_linux.go platformCleanup',
  },
  'node-unlike-others': {
    ...info('node', 'different'),
    title: 'A node does with some Services what hardly any other node does, and why is not known',
    meaning:
      'A rule that is not understood decides what comes of these Services, so that nobody can ' +
      'say whether they are served. At least three other nodes, and three in four of those for ' +
      'which the same is expected, do alike, and this node does not. While a program that writes ' +
      'rules is replaced node by node, the first and the last nodes are told.',
    remedy:
      'Compare the rules of the node with those of another, and look for what writes rules only ' +
      'here. `explain node/NAME service/NAME:PORT` names what is not understood.',
    upstream: proxiers,
  },
  'node-rules-stale': {
    ...critical('node', 'different'),
    title: 'The rules of a node are those of an earlier state of the cluster',
    meaning:
      'Several Services differ, each in the way of rules that were right once: kube-proxy has ' +
      'stopped, hangs, or cannot reach the API server.',
    remedy: 'Read the log of kube-proxy on the node, and restart it.',
    upstream: `${proxiers} syncProxyRules`,
  },
} as const satisfies Readonly<Record<string, CatalogueEntry>>;

export type Code = keyof typeof catalogue;

/** A finding as every output shows it; times in Unix seconds on the clock of the input. */
export interface Finding {
  readonly code: Code;
  readonly severity: Severity;
  readonly difference: DifferenceKind;
  readonly output: Output;
  readonly namespace: string;
  readonly service: string;
  /** Only for findings about a Node. */
  readonly node: string | null;
  readonly object: string;
  readonly field: string;
  readonly expected: string | null;
  readonly actual: string | null;
  readonly cause: Cause | null;
  /** Whether the cause is certain; else it is only likely, or not known. */
  readonly causeProven: boolean;
  /** When the difference began. */
  readonly since: number;
  /** When it had lasted for the settle window. */
  readonly openedAt: number;
  readonly resolvedAt: number | null;
}

/** The order of severities, worst first. */
export const severities: readonly Severity[] = ['critical', 'warning', 'info'];

export function isWorse(a: Severity, b: Severity): boolean {
  return severities.indexOf(a) < severities.indexOf(b);
}

/** Compares by severity, the worst first. */
export const bySeverity = (a: { severity: Severity }, b: { severity: Severity }): number =>
  severities.indexOf(a.severity) - severities.indexOf(b.severity);
