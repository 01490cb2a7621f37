// The catalogue of causes: blind spots of upstream, in which a difference lasts although every
// controller works as written. A finding names a cause only if the state or its history shows the
// condition; audit/service/reconcile.ts chooses one of several.

import {
  advice,
  byController,
  relabelService,
  type RemedySteps,
  resync,
  rewriteMirror,
  touchService,
} from './remedy-steps.ts';

export interface CauseEntry extends RemedySteps {
  readonly title: string;
  /** What the input or its history must show for the cause to be named. */
  readonly condition: string;
  /** The codes of the differences that it makes. */
  readonly codes: RegExp;
  readonly upstream: string;
}

/** Upstream's blind spots, in which a difference lasts although every controller works. */
export const causes = {
  'pod-phase-unnoticed': {
    title: 'A pod entered or left the phase Failed or Succeeded, which triggers no sync',
    condition:
      'The phase of the pod changed without its readiness, and no other event triggered a ' +
      'sync. The cause is only likely if only the entry shows it: the entry is that of the ' +
      'pod in its other phase.',
    codes: /^(endpoints-(over|address-[mu])|slice-endpoint-[mu])/,
    ...resync,
    upstream: 'k8s.io/endpointslice util/controller_utils.go podEndpointsChanged',
  },
  'pod-change-unnoticed': {
    title: 'A field of a pod changed that triggers no sync',
    condition: 'nodeName, hostname, subdomain or a container port changed, and nothing else did.',
    codes: /^(endpoints-(address|ports|over)|slice-(endpoint|ports|hints))-/,
    ...resync,
    upstream: 'k8s.io/endpointslice util/controller_utils.go podEndpointsChanged',
  },
  'node-change-unnoticed': {
    title: 'A Node was added, deleted or moved to another zone, which triggers no sync',
    condition: 'The Node of the endpoint changed after the last event that triggered a sync.',
    codes: /^slice-(endpoint|hints)-/,
    ...resync,
    upstream: 'pkg/controller/endpointslice/endpointslice_controller.go updateNode',
  },
  'pod-without-node': {
    title: 'A selected pod has an address but no Node, so the API server rejects the Endpoints',
    condition: 'A pod that should be listed has an address and an empty spec.nodeName.',
    codes: /^endpoints-(?!orphaned|truncated)/,
    ...advice(
      'Let the scheduler bind the pod, or clear its address.',
      'kubectl -n {namespace} get pod -o wide --field-selector spec.nodeName=',
    ),
    upstream: 'pkg/apis/core/validation/validation.go validateEndpointAddress',
  },
  'hand-edited': {
    title: 'Another client changed the object, and the controller does not notice that',
    condition:
      'The object was as expected and then changed while its input did not. Or it contains ' +
      'what the controller never writes and does not compare. For slices, this applies only ' +
      'to metadata.',
    codes: /^(endpoints-(?!missing|truncated)|slice-owner-|slice-orphaned|mirror-)/,
    ...relabelService,
    upstream: 'pkg/controller/endpoint/endpoints_controller.go NewEndpointController',
  },
  'node-missing-retried': {
    title: 'Syncs fail for a pod on a Node that does not exist, and a retry may be pending',
    condition:
      'A pod that should be listed names a Node that does not exist, or none. Such a sync ' +
      'writes the rest, unless its cache is older than its last write. So the slices changed ' +
      'within 2 s of the last event that triggered a sync. This cause is never more than ' +
      'likely.',
    codes: /^slice-(?!orphaned)/,
    ...byController(
      'Then register the Node again, or let the pod garbage collector remove the pod of a Node ' +
        'that is gone. The controller retries after 1 s to 1,000 s and then stops, so set an ' +
        'annotation on the Service afterwards.',
      'kubectl -n {namespace} get pod -o wide',
      touchService,
    ),
    upstream: 'pkg/controller/endpointslice/endpointslice_controller.go handleErr',
  },
  'placeholder-taken-over': {
    title: 'The controller ignores the owner and empty labels of its placeholder slice',
    condition:
      'The slice is the only one of a Service without endpoints, and only its owner or labels ' +
      'with empty values differ.',
    codes: /^slice-(labels|owner)-/,
    ...byController(
      'Then delete the slice, which the controller creates again. A placeholder has no ' +
        'endpoints to lose.',
      'kubectl -n {namespace} delete endpointslice/{slice}',
    ),
    upstream: 'k8s.io/endpointslice reconciler.go placeholderSliceCompare',
  },
  'service-recreated': {
    title: 'The controller took an empty slice of a deleted Service of the same name for its own',
    condition:
      'An empty slice without ports and with the labels of the Service was owned by a deleted ' +
      'Service of its name, and was deleted. The controller does not track it, so its ' +
      'deletion triggers no sync.',
    codes: /^slice-placeholder-/,
    ...resync,
    upstream: 'k8s.io/endpointslice reconciler.go placeholderSliceCompare',
  },
  'mirror-recycling-fails': {
    title: 'The mirroring controller fails to recycle slices of two address types',
    condition:
      'The controller has to create slices of both address types and to delete others. ' +
      'Depending on a random order, it tries to create a name that exists, and gives up after ' +
      '15 attempts. This cause is never more than likely.',
    codes: /^mirror-/,
    ...rewriteMirror,
    upstream: 'pkg/controller/endpointslicemirroring/reconciler_helpers.go recycleSlices',
  },
  'slice-relabelled': {
    title: 'A slice lost the labels that assign it to the controller, which blocks every sync',
    condition:
      'A slice that the Service owns lost its service-name or managed-by label. The ' +
      'controller ends every sync with “informer cache is out of date”. The same applies to ' +
      'mirrored slices. The cause is only likely if the auditor did not see the loss: the ' +
      'controller may have restarted since.',
    codes: /^(slice-(?!orphaned)|mirror-)/,
    ...byController(
      'Then restore the labels kubernetes.io/service-name and ' +
        'endpointslice.kubernetes.io/managed-by of the slice, then set an annotation on the ' +
        'Service. If that does not help, restart kube-controller-manager: it writes another ' +
        'slice, and then you can delete this one.',
      'kubectl -n {namespace} get endpointslices --show-labels',
      touchService,
    ),
    upstream: 'k8s.io/endpointslice util/endpointslice_tracker.go StaleSlices',
  },
  'headless-label-kept': {
    title: 'When the controller compares labels, it ignores the headless label',
    condition: 'Only the label service.kubernetes.io/headless differs.',
    codes: /^(endpoints|slice)-labels-/,
    ...relabelService,
    upstream: 'k8s.io/endpointslice utils.go setEndpointSliceLabels',
  },
} as const satisfies Readonly<Record<string, CauseEntry>>;

export type Cause = keyof typeof causes;

/** Whether a cause makes differences of a code. */
export const explains = (cause: Cause, code: string): boolean => causes[cause].codes.test(code);
