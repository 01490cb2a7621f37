// The catalogue of findings: every code with its meaning and its remedy. A test keeps
// docs/findings.md equal to this catalogue and to that of the causes.
//
// A finding reports that an output differs from what the controllers should write (endpoints,
// endpointslices, mirrored, node), or that the input itself has a fault (input). Severity follows
// the effect on traffic: critical, it is lost or reaches a wrong pod; warning, it is or will be
// after another event, or metadata that clients rely on is wrong; info, no traffic is affected.

import type { Cause } from './causes.ts';
import {
  advice,
  listSlices,
  readProxyLog,
  type RemedySteps,
  restartProxy,
  restoreSelector,
  resync,
  resyncNode,
  rewriteEndpoints,
  rewriteMirror,
  rewriteSlice,
} from './remedy-steps.ts';

export type Output = 'endpoints' | 'endpointslices' | 'mirrored' | 'node' | 'input';
export type Severity = 'critical' | 'warning' | 'info';
export type DifferenceKind = 'missing' | 'unexpected' | 'different';

export interface CatalogueEntry extends RemedySteps {
  readonly output: Output;
  /** The usual severity; a finding may have another one if its effect differs. */
  readonly severity: Severity;
  readonly difference: DifferenceKind;
  readonly title: string;
  readonly meaning: string;
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

const proxiers = 'pkg/proxy/iptables/proxier.go, pkg/proxy/nftables/proxier.go';
export const catalogue = {
  'endpoints-missing': {
    ...warning('endpoints', 'missing'),
    title: 'The Endpoints object of a Service with a selector does not exist',
    meaning:
      'The controller creates an Endpoints object for every Service with a selector, even if ' +
      'it has no pods. Clients that read Endpoints do not find the Service.',
    ...resync,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-orphaned': {
    ...info('endpoints', 'unexpected'),
    title: 'Endpoints that the controller wrote exist without their Service',
    meaning:
      'The managed-by label shows that the controller wrote the object, but no Service has ' +
      'its name. It receives no traffic. The controller deletes it when ' +
      'kube-controller-manager restarts.',
    ...advice(
      'Delete the Endpoints object, because no Service uses it.',
      'kubectl -n {namespace} delete endpoints/{service}',
    ),
    upstream: `${endpointsController} checkLeftoverEndpoints`,
  },
  'endpoints-address-unexpected': {
    ...warning('endpoints', 'unexpected'),
    title: 'Endpoints list an address that no selected pod has',
    meaning:
      'The pod was deleted, has finished, is terminating or is not selected, or it never ' +
      'existed. Clients that read Endpoints send traffic to an address that belongs to no pod ' +
      'or to another pod.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-address-missing': {
    ...warning('endpoints', 'missing'),
    title: 'A pod is missing from the Endpoints of its Service',
    meaning:
      'The Service selects the pod, and the pod has an address and a port of the Service. The ' +
      'Endpoints do not list it.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} syncService`,
  },
  'endpoints-address-different': {
    ...warning('endpoints', 'different'),
    title: 'An address in Endpoints names another pod, node or hostname',
    meaning: 'The address is correct. Its targetRef, nodeName or hostname is not.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'endpoints-readiness-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints list a ready pod as not ready, or the reverse',
    meaning: 'A ready pod is in notReadyAddresses, or a pod that is not ready is in addresses.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} addEndpointSubset`,
  },
  'endpoints-ports-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints list an address with the wrong port',
    meaning:
      'The name, number, protocol or appProtocol of a port does not match the Service and the ' +
      'pod.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} endpointPortFromServicePort`,
  },
  'endpoints-labels-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints do not have the labels of their Service',
    meaning:
      'Endpoints have exactly the labels of their Service, the headless label if it has no ' +
      'cluster IP, and since 1.33 the managed-by label.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} labelsCorrectForEndpoints`,
  },
  'endpoints-over-capacity-different': {
    ...warning('endpoints', 'different'),
    title: 'Endpoints are not truncated correctly, or are marked as truncated without a reason',
    meaning:
      'The controller cuts an object with more than 1,000 addresses to 1,000, ready ones ' +
      'first. It then sets the annotation endpoints.kubernetes.io/over-capacity to truncated.',
    ...rewriteEndpoints,
    upstream: `${endpointsController} truncateEndpoints`,
  },
  'slice-endpoint-missing': {
    ...warning('endpointslices', 'missing'),
    title: 'A pod is missing from the EndpointSlices of its Service',
    meaning:
      'The Service selects the pod, so a slice should list it. No slice of the Service does.',
    ...resync,
    upstream: `${sliceReconciler} reconcileByAddressType`,
  },
  'slice-endpoint-unexpected': {
    ...critical('endpointslices', 'unexpected'),
    title: 'A slice lists an endpoint that no selected pod has',
    meaning:
      'The pod was deleted, has finished or is not selected, or has another address. Unless ' +
      'the endpoint is not ready, nodes send traffic to an address that no pod, or another ' +
      'pod, has.',
    ...rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-conditions-different': {
    ...warning('endpointslices', 'different'),
    title: 'The conditions of an endpoint do not match its pod',
    meaning:
      'The conditions ready, serving and terminating follow from the Ready condition and the ' +
      'deletion of the pod, and from publishNotReadyAddresses. Nodes send traffic to a pod ' +
      'that is not ready, or none to a pod that is ready.',
    ...resync,
    upstream: `${sliceUtils} podToEndpoint`,
  },
  'slice-endpoint-different': {
    ...warning('endpointslices', 'different'),
    title: 'An endpoint names another pod, node, zone or hostname',
    meaning:
      'The address is correct. Its targetRef, nodeName, zone or hostname is not. Nodes use ' +
      'the zone to choose endpoints.',
    ...rewriteSlice,
    upstream: `${sliceUtils} podToEndpoint`,
  },
  'slice-ports-different': {
    ...critical('endpointslices', 'different'),
    title: 'An endpoint is listed with the wrong port',
    meaning:
      'The name, number, protocol or appProtocol of a port does not match the Service and the ' +
      'pod.',
    ...rewriteSlice,
    upstream: `${sliceUtils} getEndpointPorts`,
  },
  'slice-hints-different': {
    ...warning('endpointslices', 'different'),
    title: 'Topology hints do not match the Service',
    meaning:
      'With trafficDistribution, every ready endpoint has a hint for its own zone, and for ' +
      'its node if the Service prefers that. With topology-mode Auto, all ready endpoints ' +
      'have a hint or none has. Otherwise there are no hints.',
    ...resync,
    upstream: 'k8s.io/endpointslice trafficdist/trafficdist.go, topologycache/topologycache.go',
  },
  'slice-labels-different': {
    ...warning('endpointslices', 'different'),
    title: 'A slice does not have the labels of its Service',
    meaning:
      'A slice has the labels of its Service, service-name, managed-by, and the headless ' +
      'label if the Service has no cluster IP. A slice with another service-name does not ' +
      'belong to its Service.',
    ...rewriteSlice,
    upstream: `${sliceUtils} setEndpointSliceLabels`,
  },
  'slice-owner-different': {
    ...warning('endpointslices', 'different'),
    title: 'A slice is not owned by its Service',
    meaning:
      'The owner reference is absent, or names a deleted Service of the same name. The ' +
      'garbage collector may delete the slice, or may keep it after the Service is deleted.',
    ...rewriteSlice,
    upstream: `${sliceUtils} ownedBy`,
  },
  'slice-family-unexpected': {
    ...warning('endpointslices', 'unexpected'),
    title: 'A slice has an address type that its Service does not have',
    meaning:
      'The Service does not have this IP family, or has it no longer. The controller should ' +
      'have deleted its slices of that family.',
    ...rewriteSlice,
    upstream: `${sliceReconciler} Reconcile`,
  },
  'slice-oversized': {
    ...warning('endpointslices', 'different'),
    title: 'A slice has more endpoints than the controller puts into one',
    meaning:
      'The controller puts up to --max-endpoints-per-slice endpoints (100) into a slice. If ' +
      'your control plane has another value, set --max-endpoints-per-slice of the auditor to ' +
      'it.',
    ...rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-placeholder-missing': {
    ...warning('endpointslices', 'missing'),
    title: 'A Service without endpoints has no empty slice',
    meaning:
      'The controller keeps one empty slice for each address type of a Service that has no ' +
      'endpoints.',
    ...resync,
    upstream: `${sliceReconciler} reconcileByAddressType`,
  },
  'slice-duplicate-conflicting': {
    ...warning('endpointslices', 'different'),
    title: 'Two slices list one endpoint with different conditions',
    meaning: 'A node may use either of them. The next sync of the Service removes one.',
    ...rewriteSlice,
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-duplicate': {
    ...info('endpointslices', 'unexpected'),
    title: 'Two slices list one endpoint with equal conditions',
    meaning: 'The API allows this, and nodes count the endpoint once.',
    ...advice('No action is needed. The next sync of the Service removes one.'),
    upstream: 'k8s.io/api discovery/v1 types.go EndpointSlice',
  },
  'slice-surplus-empty': {
    ...info('endpointslices', 'unexpected'),
    title: 'A Service has an empty slice in addition to others',
    meaning: 'It serves no traffic. The next sync that changes endpoints removes or fills it.',
    ...advice('No action is needed.'),
    upstream: `${sliceReconciler} reconcileByPortMapping`,
  },
  'slice-orphaned': {
    ...warning('endpointslices', 'unexpected'),
    title: 'A slice of the controller exists without its Service',
    meaning:
      'The Service that the slice names does not exist. The garbage collector should have ' +
      'deleted the slice.',
    ...advice(
      'Delete the EndpointSlice, because no Service uses it. If more such slices remain, read ' +
        'the log of kube-controller-manager, which runs the garbage collector.',
      'kubectl -n {namespace} delete endpointslice/{slice}',
    ),
    upstream: 'pkg/controller/garbagecollector',
  },
  'mirror-endpoint-missing': {
    ...warning('mirrored', 'missing'),
    title: 'The mirrored slices do not list an address of the Endpoints',
    meaning: 'Nodes read only slices. They send no traffic to this address.',
    ...rewriteMirror,
    upstream: `${mirroringReconciler} reconcile`,
  },
  'mirror-endpoint-unexpected': {
    ...critical('mirrored', 'unexpected'),
    title: 'A mirrored slice lists an address that the Endpoints do not list',
    meaning: 'Nodes send traffic to an address that was removed.',
    ...rewriteMirror,
    upstream: `${mirroringReconciler} reconcileByPortMapping`,
  },
  'mirror-endpoint-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored endpoint names another node, hostname or target than its Endpoints',
    meaning:
      'The controller copies nodeName, hostname and targetRef from the Endpoints without a ' +
      'check.',
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go addressToEndpoint',
  },
  'mirror-conditions-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored endpoint has another readiness than its address in Endpoints',
    meaning: 'A mirrored endpoint has the condition ready and no other condition.',
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go addressToEndpoint',
  },
  'mirror-ports-different': {
    ...critical('mirrored', 'different'),
    title: 'A mirrored endpoint is listed with the wrong port',
    meaning: 'The ports are not those of the Endpoints subset that lists the address.',
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go epPortsToEpsPorts',
  },
  'mirror-labels-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored slice does not have the labels of its Endpoints',
    meaning:
      'The controller copies the labels of the Endpoints, and sets service-name and ' +
      'managed-by.',
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go newEndpointSlice',
  },
  'mirror-annotations-different': {
    ...info('mirrored', 'different'),
    title: 'A mirrored slice does not have the annotations of its Endpoints',
    meaning:
      'The controller copies all annotations except last-applied-configuration and the ' +
      'trigger time.',
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/utils.go newEndpointSlice',
  },
  'mirror-owner-different': {
    ...warning('mirrored', 'different'),
    title: 'A mirrored slice is not owned by its Endpoints',
    meaning:
      'An earlier Endpoints object of the same name owns it, which the controller corrects. ' +
      'Or no object owns it, which only an edit can cause and which the controller does not ' +
      'notice.',
    ...rewriteMirror,
    upstream: `${mirroringReconciler} needRebuildExistingSlices`,
  },
  'mirror-slice-unexpected': {
    ...critical('mirrored', 'unexpected'),
    title: 'A mirrored slice exists although its Endpoints are not mirrored',
    meaning:
      'The Endpoints were deleted, or have the skip-mirror label or the leader annotation. Or ' +
      'the Service was deleted or has a selector.',
    ...advice(
      'Check that no client needs the addresses of the slice, then delete it. The controller ' +
        'does not create it again.',
      'kubectl -n {namespace} get endpointslice/{slice} -o yaml',
      'kubectl -n {namespace} delete endpointslice/{slice}',
    ),
    upstream:
      'pkg/controller/endpointslicemirroring/endpointslicemirroring_controller.go syncEndpoints',
  },
  'mirror-slice-duplicate': {
    ...info('mirrored', 'unexpected'),
    title: 'There is one mirrored slice too many',
    meaning:
      'The controller writes one mirrored slice for each address type and set of ports that ' +
      'has endpoints. A second one, or an empty one with other ports, has no effect.',
    ...advice('No action is needed. The next sync of the Endpoints deletes it.'),
    upstream: `${mirroringReconciler} reconcileByPortMapping`,
  },
  'left-behind': {
    ...info('input', 'unexpected'),
    title: 'Endpoints or slices remain from a selector that was removed',
    meaning:
      'The selector was removed, or the type became ExternalName. The controllers do not ' +
      'update what they wrote before.',
    ...restoreSelector,
    upstream: `${endpointsController} syncService`,
  },
  'left-behind-dead': {
    ...warning('input', 'unexpected'),
    title: 'Addresses that remain from a removed selector have lost their pods',
    meaning:
      'No controller updates these addresses, and the pods that had them are gone. Nodes send ' +
      'traffic to addresses that no pod has, or that pods of another Service have now.',
    ...restoreSelector,
    upstream: `${endpointsController} syncService`,
  },
  'address-shared': {
    ...warning('input', 'different'),
    title: 'Two running pods report one address',
    meaning:
      'The Services of both pods list the address, so traffic for one pod may reach the ' +
      'other. The finding is reported on the Services of the pod that got the address later. ' +
      'If none selects it, the finding is reported on those of the earlier pod.',
    ...advice(
      'Find out which pod has the address on its node, and report the conflict to the ' +
        'maintainers of the network plugin. Remove the other pod from its Services by changing ' +
        'its labels.',
      'kubectl get pod -A -o wide --field-selector status.podIP={address}',
    ),
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'pod-without-node': {
    ...warning('input', 'different'),
    title: 'A selected pod has an address but no Node, which blocks updates of the Endpoints',
    meaning:
      'The API server rejects Endpoints with an empty nodeName. For all pods of the Service, ' +
      'the object keeps its old content or is never created. Slices leave the pod out and are ' +
      'correct.',
    ...advice(
      'Find out why the pod is not scheduled and which client set its address. Let the ' +
        'scheduler bind the pod, or clear its address.',
      'kubectl -n {namespace} describe pod/{pod}',
    ),
    upstream: `${endpointsController} podToEndpointAddressForService`,
  },
  'managers-several': {
    ...info('input', 'unexpected'),
    title: 'Another manager writes slices for a Service with a selector',
    meaning:
      'Nodes use all slices of a Service. The auditor does not audit slices of another ' +
      'manager.',
    ...advice(
      'Check that the other manager is intended. The label ' +
        'endpointslice.kubernetes.io/managed-by of a slice names its manager.',
      listSlices,
    ),
    upstream: 'k8s.io/api discovery/v1 well_known_labels.go LabelManagedBy',
  },
  'duplicate-conflicting': {
    ...warning('input', 'different'),
    title: 'Two managers list one endpoint with different conditions',
    meaning: 'The slice that a node reads last decides whether the node uses the address.',
    ...advice('Remove the address from the slices of one of the managers.', listSlices),
    upstream: 'pkg/proxy/endpointslicecache.go',
  },
  'foreign-endpoint-dead': {
    ...info('input', 'unexpected'),
    title: 'A slice of another manager names a pod that does not exist',
    meaning:
      'The auditor does not audit this slice. But the pod that it names was deleted or ' +
      'replaced.',
    ...advice(
      'Check the manager that the label endpointslice.kubernetes.io/managed-by names.',
      listSlices,
    ),
    upstream: 'k8s.io/api discovery/v1 well_known_labels.go LabelManagedBy',
  },
  'endpoints-truncated': {
    ...info('input', 'missing'),
    title: 'A Service has more addresses than an Endpoints object can list',
    meaning:
      'Clients that read Endpoints instead of slices see 1,000 addresses and not the others.',
    ...advice('Let clients read EndpointSlices, which list all addresses.'),
    upstream: `${endpointsController} truncateEndpoints`,
  },
  'object-near-size-limit': {
    ...warning('input', 'different'),
    title: 'An object is close to the size limit of the API server',
    meaning:
      'The API server rejects requests above 1.5 MiB. The object then keeps its present ' +
      'content.',
    ...advice('Split the Service, or remove what makes the object large.'),
    upstream: 'etcd --max-request-bytes',
  },
  'hints-absent': {
    ...info('input', 'missing'),
    title: 'topology-mode is Auto, but there are no hints',
    meaning:
      'Nodes spread traffic over all zones. The finding names the reason if the input shows ' +
      'it.',
    ...advice('Use spec.trafficDistribution, which has no thresholds.'),
    upstream: 'k8s.io/endpointslice topologycache/event.go',
  },
  'node-frontend-missing': {
    ...critical('node', 'missing'),
    title: 'A node does not forward the traffic of a Service port',
    meaning:
      'kube-proxy has no working rule for this address and port on this node. Connections ' +
      'leave with the address of the Service as destination and time out. The finding names ' +
      'the sources that are affected.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-frontend-blocked': {
    ...critical('node', 'different'),
    title: 'A node rejects or drops packets to a Service port that has endpoints',
    meaning:
      'The rules stop connections that they should forward. The node may know no endpoints of ' +
      'the port, or a rule remains from before. Or the policy of FORWARD or INPUT drops ' +
      'packets that no rule accepts.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-frontend-unexpected': {
    ...warning('node', 'unexpected'),
    title: 'A node forwards an address and port that no Service has',
    meaning:
      'The rules of kube-proxy still forward an address of a Service that was deleted or ' +
      'changed. The next owner of the address inherits the traffic.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-endpoint-missing': {
    ...critical('node', 'missing'),
    title: 'A node sends no connections to an endpoint that it should use',
    meaning:
      'The node can use the endpoint, but no packet reaches it. The other endpoints take its ' +
      'share, or the share is lost.',
    ...resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-endpoint-unexpected': {
    ...critical('node', 'unexpected'),
    title: 'A node sends connections to a destination that is not an endpoint of the Service',
    meaning:
      'The pod was deleted, or the address and port never were an endpoint of this Service. ' +
      'Connections fail or reach another program.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-policy-different': {
    ...warning('node', 'different'),
    title:
      'A node uses an endpoint that a traffic policy, hint, condition or source range ' +
      'excludes',
    meaning:
      'The destination is an endpoint of the Service, but not for these packets. It is on ' +
      'another node, in another zone or not ready, or the source may not use the Service ' +
      'port.',
    ...resyncNode,
    upstream: 'pkg/proxy/topology.go CategorizeEndpoints',
  },
  'node-share-different': {
    ...warning('node', 'different'),
    title: 'A node does not spread connections evenly over the endpoints',
    meaning:
      'The node uses all endpoints, but with unequal probabilities. The difference exceeds ' +
      'the rounding of kube-proxy.',
    ...resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-masquerade-missing': {
    ...critical('node', 'missing'),
    title: 'A node does not masquerade packets that it should masquerade',
    meaning:
      'The reply goes directly to the client, which does not know the endpoint. Connections ' +
      'from such sources time out.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-masquerade-unexpected': {
    ...warning('node', 'unexpected'),
    title: 'A node masquerades packets whose source address it should keep',
    meaning:
      'Endpoints see the address of the node instead of the client. Network policies, source ' +
      'ranges and logs then use the wrong address.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-affinity-different': {
    ...warning('node', 'different'),
    title: 'Session affinity on a node does not match the Service',
    meaning:
      'Clients do not stay with their endpoint, stay for another time, or stay although the ' +
      'Service has no session affinity.',
    ...resyncNode,
    upstream: `${proxiers} writeServiceToEndpointRules`,
  },
  'node-reject-missing': {
    ...warning('node', 'missing'),
    title: 'A node does not reject or drop packets that it should stop',
    meaning:
      'There are no endpoints, the policy allows none, or the source is forbidden. The node ' +
      'still forwards the packets, or drops packets that it should reject.',
    ...resyncNode,
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-foreign-rule': {
    ...critical('node', 'unexpected'),
    title: 'A rule of another program changes or stops packets of a Service',
    meaning:
      'The rule of another program, which the finding names, handles packets before or after ' +
      'the rules of kube-proxy. The severity is info if it only excludes this address and ' +
      'port from connection tracking, and the packets reach the node itself. NodeLocal ' +
      'DNSCache does this on purpose.',
    ...advice(
      'Find out which program wrote the rule, and limit the rule so that it does not match ' +
        'Services. If the severity is info, check that a program on the node listens at the ' +
        'address and port.',
    ),
    upstream: `${proxiers} iptablesJumpChains`,
  },
  'node-endpoint-blocked': {
    ...warning('node', 'unexpected'),
    title: 'A rule of another program stops packets to an endpoint, as a network policy does',
    meaning:
      'The rules of kube-proxy forward the packets correctly. Then the rule of another ' +
      'program, which the finding names, rejects or drops packets to this one endpoint. ' +
      'Network policies do this, so it is probably intended. But the Service still sends ' +
      'connections to the endpoint, and they fail. The severity is info if the rule is in a ' +
      'policy chain of kube-router or Calico.',
    ...advice(
      'Find out which network policy selects the pod. If it should not affect clients of the ' +
        'Service, allow them. If it isolates the pod on purpose, also remove the pod from the ' +
        'Service.',
      'kubectl -n {namespace} get networkpolicies',
    ),
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-rules-flushed': {
    ...critical('node', 'missing'),
    title: 'The rules of kube-proxy are missing on a node',
    meaning:
      'No rule forwards most Services, so they do not work from this node. A program deleted ' +
      'the rules, or kube-proxy never ran.',
    ...restartProxy('Find out which program deleted the rules.'),
    upstream: 'pkg/util/iptables/iptables.go Monitor',
  },
  'node-rules-unreachable': {
    ...critical('node', 'missing'),
    title: 'A node does not use its kube-proxy rules, because nothing jumps to them',
    meaning:
      'The jumps to the chain KUBE-SERVICES (nftables: services) are missing, or another rule ' +
      'handles packets before them. In iptables, PREROUTING and OUTPUT of table nat have these ' +
      'jumps; in nftables, nat-prerouting and nat-output of table kube-proxy. Most Services do ' +
      'not work from some or all sources.',
    ...restartProxy('The new pod writes the jumps again. Find out which program removed them.'),
    upstream: `${proxiers} iptablesJumpChains`,
  },
  'node-rules-different': {
    ...critical('node', 'different'),
    title: 'The rules of a node are wrong for most Services in the same way',
    meaning:
      'Something that all Services share is broken: marks, masquerading, the path to node ' +
      'ports, or the policy of a chain. The finding shows the first of these Services.',
    ...restartProxy('Find out which program changes its rules.'),
    upstream: `${proxiers} syncProxyRules`,
  },
  'node-backends-both': {
    ...info('node', 'unexpected'),
    title: 'Two sets of rules on a node translate the same Service ports',
    meaning:
      'The node has rules of both iptables backends, or of iptables and nftables mode, with ' +
      'one priority. The set that was registered last runs first, and no dump shows which one ' +
      'that is. Where the sets differ, the behavior of the node is unknown.',
    ...advice('Remove the rules of the mode or backend that kube-proxy no longer uses.'),
    upstream: 'pkg/proxy/runner, cmd/kube-proxy/app/server_linux.go platformCleanup',
  },
  'node-unlike-others': {
    ...info('node', 'different'),
    title: 'A node handles some Services differently from most other nodes, for an unknown reason',
    meaning:
      'The auditor cannot evaluate a rule that decides about these Services, so it does not ' +
      'know whether they work. At least three other nodes, and three in four of the ' +
      'comparable nodes, handle them alike, and this node does not. During a node-by-node ' +
      'update of a program that writes rules, the first and the last nodes have this finding.',
    ...advice(
      'Compare the rules of the node with those of another node, and look for a program that ' +
        'writes rules only here. The command `endpoint-auditor explain node/NAME ' +
        'service/NAME:PORT` names the rule that it cannot evaluate.',
    ),
    upstream: proxiers,
  },
  'node-rules-stale': {
    ...critical('node', 'different'),
    title: 'The rules of a node are those of an earlier state of the cluster',
    meaning:
      'Several Services differ, and the rules of each were correct at an earlier time. ' +
      'kube-proxy has stopped, hangs, or cannot reach the API server.',
    ...restartProxy('First read its log.'),
    commands: [readProxyLog, ...resyncNode.commands],
    upstream: `${proxiers} syncProxyRules`,
  },
} as const satisfies Readonly<Record<string, CatalogueEntry>>;

export type Code = keyof typeof catalogue;

/** One field of one object that differs, as reports list it. */
export interface DifferenceDetail {
  readonly code: Code;
  /** An IP address, or `ip:port` of an endpoint on a node; `null` if it is about no address. */
  readonly address: string | null;
  /** `namespace/name`; `null` if no pod is known at the address, or there is no address. */
  readonly pod: string | null;
  readonly field: string;
  /** `null` if the field, or the whole entry, should be absent. */
  readonly expected: string | null;
  /** `null` if the field, or the whole entry, is absent. */
  readonly actual: string | null;
  /** `Kind namespace/name`. */
  readonly object: string;
}

/** How a finding is suppressed (suppressions.ts). */
export interface Suppressed {
  readonly owner: string;
  readonly reason: string;
  /** The date as it is written. */
  readonly expires: string;
  /** `suppressions.yaml:3`, or the Service with the annotation. */
  readonly source: string;
}

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
  /** Every differing field of every object; of a resolved finding the first 100. */
  readonly differences: readonly DifferenceDetail[];
  readonly cause: Cause | null;
  /** Whether the cause is certain; else it is only likely, or not known. */
  readonly causeProven: boolean;
  /** When the difference began. */
  readonly since: number;
  /** When it had lasted for the settle window. */
  readonly openedAt: number;
  readonly resolvedAt: number | null;
  /** How it is accepted until a date; `null` if it is not. */
  readonly suppressed: Suppressed | null;
}

/** Codes that an earlier state of a Service can explain, if the node has not followed it. */
export const staleCodes: ReadonlySet<Code> = new Set([
  'node-frontend-missing',
  'node-frontend-blocked',
  'node-frontend-unexpected',
  'node-endpoint-missing',
  'node-endpoint-unexpected',
  'node-policy-different',
  'node-reject-missing',
]);

/**
 * Differences with equal keys are one finding, so open findings have different keys
 * (docs/decisions/0029-one-finding-per-code-and-cause.md).
 */
export const openFindingKey = (
  it: Pick<Finding, 'namespace' | 'service' | 'node' | 'code' | 'cause'>,
): string => `${it.namespace}/${it.service} ${it.node ?? ''} ${it.code} ${it.cause ?? ''}`;

/** The order of severities, worst first. */
export const severities: readonly Severity[] = ['critical', 'warning', 'info'];

export function isWorse(a: Severity, b: Severity): boolean {
  return severities.indexOf(a) < severities.indexOf(b);
}

/** Compares by severity, the worst first. */
export const bySeverity = (a: { severity: Severity }, b: { severity: Severity }): number =>
  severities.indexOf(a.severity) - severities.indexOf(b.severity);
