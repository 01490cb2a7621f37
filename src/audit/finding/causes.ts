// The catalogue of causes: upstream's blind spots, in which a difference lasts although every
// controller works as written. A finding names a cause only if the state or its history shows the
// condition; audit/service/reconcile.ts chooses one of several.

export interface CauseEntry {
  readonly title: string;
  /** What the input or its history must show for the cause to be named. */
  readonly condition: string;
  /** The codes of the differences that it makes. */
  readonly codes: RegExp;
  readonly cure: string;
  readonly upstream: string;
}

/** Upstream's blind spots, in which a difference lasts although every controller works. */
export const causes = {
  'pod-phase-unnoticed': {
    title: 'A pod became Failed or Succeeded, or left that phase, and nobody was woken',
    condition:
      'The pod’s phase changed without its readiness, and no other event woke the controller; it ' +
      'is only likely where just the entry shows it, which is that of the pod in its other phase.',
    codes: /^(endpoints-(over|address-[mu])|slice-endpoint-[mu])/,
    cure: 'Delete the pod; any change of the Service cures it too, such as a new annotation.',
    upstream: 'k8s.io/endpointslice util/controller_utils.go podEndpointsChanged',
  },
  'pod-change-unnoticed': {
    title: 'A field of a pod changed that wakes nobody',
    condition: 'nodeName, hostname, subdomain or a container port changed, and nothing else did.',
    codes: /^(endpoints-(address|ports|over)|slice-(endpoint|ports|hints))-/,
    cure: 'Any change of the Service cures it, such as a new annotation.',
    upstream: 'k8s.io/endpointslice util/controller_utils.go podEndpointsChanged',
  },
  'node-change-unnoticed': {
    title: 'A Node came, went or moved to another zone, and nobody was woken',
    condition: 'The Node of the endpoint changed after the last event that woke the controller.',
    codes: /^slice-(endpoint|hints)-/,
    cure: 'Any change of the Service cures it, such as a new annotation.',
    upstream: 'pkg/controller/endpointslice/endpointslice_controller.go updateNode',
  },
  'pod-without-node': {
    title: 'A selected pod has an address but no Node, so the API server refuses the Endpoints',
    condition: 'A pod that must be listed has an address and an empty spec.nodeName.',
    codes: /^endpoints-(?!orphaned|truncated)/,
    cure: 'Delete the pod or clear its address.',
    upstream: 'pkg/apis/core/validation/validation.go validateEndpointAddress',
  },
  'hand-edited': {
    title: 'Somebody else changed the object, and the controller does not watch for that',
    condition:
      'The object was as expected, then changed while its input did not, or holds what the ' +
      'controller never writes and does not look for; for slices, only in its metadata.',
    codes: /^(endpoints-(?!missing|truncated)|slice-owner-|slice-orphaned|mirror-)/,
    cure:
      'See that kube-controller-manager runs, then change a label of the Service. Delete the ' +
      'object last, and only while it runs: until it is written anew, endpoints get no traffic.',
    upstream: 'pkg/controller/endpoint/endpoints_controller.go NewEndpointController',
  },
  'node-missing-retried': {
    title: 'Syncs fail for a pod on a Node that does not exist, and a retry may be waiting',
    condition:
      'A pod that should be listed names a Node that does not exist, or none. Such a sync writes ' +
      'the rest, unless it finds a cache older than its last write: so the slices changed within ' +
      '2 s of the last event that woke the controller. This cause is never more than likely.',
    codes: /^slice-(?!orphaned)/,
    cure: 'Delete the pod or bring the Node back; retries come at 1 s to 1,000 s, then never.',
    upstream: 'pkg/controller/endpointslice/endpointslice_controller.go handleErr',
  },
  'placeholder-taken-over': {
    title: 'Owner and labels of empty value do not count when placeholders are compared',
    condition:
      'The slice is the only one of a Service without endpoints, and nothing but its owner or ' +
      'labels of empty value differ.',
    codes: /^slice-(labels|owner)-/,
    cure:
      'See that kube-controller-manager runs, then delete the slice, which it writes anew; a ' +
      'placeholder has no endpoints to lose.',
    upstream: 'k8s.io/endpointslice reconciler.go placeholderSliceCompare',
  },
  'service-recreated': {
    title: 'A Service was recreated, and the slice it took for its own belonged to the one before',
    condition:
      'An empty slice without ports, with the labels of the Service, was owned by a Service of ' +
      'its name that is gone, and was deleted. The controller does not track it and is not woken.',
    codes: /^slice-placeholder-/,
    cure: 'Any change of the Service cures it, such as a new annotation.',
    upstream: 'k8s.io/endpointslice reconciler.go placeholderSliceCompare',
  },
  'mirror-recycling-fails': {
    title: 'The mirroring controller fails to recycle slices of two address types',
    condition:
      'Slices of both address types must be created while others must go: by chance of an order, ' +
      'the controller tries to create a name that exists, and gives up after 15 tries. This ' +
      'cause is never more than likely.',
    codes: /^mirror-/,
    cure:
      'See that kube-controller-manager runs, then change an annotation of the Endpoints. Delete ' +
      'the mirrored slices last, and only while it runs: until they are written anew, endpoints ' +
      'get no traffic.',
    upstream: 'pkg/controller/endpointslicemirroring/reconciler_helpers.go recycleSlices',
  },
  'slice-relabelled': {
    title: 'A slice was taken from the controller by its labels, which wedges the controller',
    condition:
      'A slice that the Service owns lost its service-name or managed-by label: the controller ' +
      'answers every sync with “informer cache is out of date”. Mirrored slices the same. It is ' +
      'only likely if the loss was not seen: the controller may have been restarted since.',
    codes: /^(slice-(?!orphaned)|mirror-)/,
    cure:
      'Restart kube-controller-manager, which then writes another slice. Once that stands, ' +
      'delete this one.',
    upstream: 'k8s.io/endpointslice util/endpointslice_tracker.go StaleSlices',
  },
  'headless-label-kept': {
    title: 'The headless label does not count when labels are compared',
    condition: 'Nothing but the label service.kubernetes.io/headless differs.',
    codes: /^(endpoints|slice)-labels-/,
    cure: 'Change another label of the Service.',
    upstream: 'k8s.io/endpointslice utils.go setEndpointSliceLabels',
  },
} as const satisfies Readonly<Record<string, CauseEntry>>;

export type Cause = keyof typeof causes;

/** Whether a cause makes differences of a code. */
export const explains = (cause: Cause, code: string): boolean => causes[cause].codes.test(code);
