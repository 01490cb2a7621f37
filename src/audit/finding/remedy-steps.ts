// The remedies that several findings share, each with templates of commands. remedies.ts replaces
// {namespace}, {service}, {node}, {slice}, {pod} and {address} by names of the finding.
//
// An annotation of a Service makes the endpoints and endpointslice controllers sync it, and one of
// Endpoints the mirroring controller: their update handlers queue every update
// (pkg/controller/endpoint/endpoints_controller.go onServiceUpdate, kubernetes@v1.36.3).

/** A remedy as the catalogue has it, before names are filled in. */
export interface RemedySteps {
  readonly remedy: string;
  readonly commands: readonly string[];
  /** What to do on a managed control plane or distribution; `null` if the same. */
  readonly managed: string | null;
}

const touch = 'endpoint-auditor-touched="$(date +%s)" --overwrite';
export const getLease = 'kubectl -n kube-system get lease kube-controller-manager';
export const touchService = `kubectl -n {namespace} annotate service/{service} ${touch}`;
const touchEndpoints = `kubectl -n {namespace} annotate endpoints/{service} ${touch}`;
export const getLog = 'kubectl -n kube-system logs -l component=kube-controller-manager --tail=200';
export const listSlices =
  'kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={service} ' +
  '-L endpointslice.kubernetes.io/managed-by';
const ofNode = '-l k8s-app=kube-proxy --field-selector spec.nodeName={node}';

const managedControllers =
  'On a managed control plane (EKS, GKE, AKS) you cannot restart kube-controller-manager. Read ' +
  'its log in the log service of the provider. If the finding comes back, open a support ' +
  'ticket and attach this finding as evidence.';
const managedProxy =
  'AKS labels the pods of kube-proxy with component=kube-proxy. GKE and k3s do not run ' +
  'kube-proxy as a DaemonSet: restart it on the node itself.';
const checkRunning = 'Check that kube-controller-manager runs and renews its lease.';
const readLog = 'If the finding comes back, read the log of kube-controller-manager.';
const lastResort = (what: string, effect: string): string =>
  `Delete the ${what} only as a last resort, and only while kube-controller-manager runs: ` +
  `${effect}.`;

/** A remedy that no control plane changes. */
export const advice = (remedy: string, ...commands: readonly string[]): RemedySteps => ({
  remedy,
  commands,
  managed: null,
});

export const restoreSelector = advice(
  'Restore the selector if the Service should have one. Otherwise delete the Endpoints ' +
    'and the slices that remain, after you checked that no client needs their addresses.',
  'kubectl -n {namespace} get service/{service} endpoints/{service} -o yaml',
  listSlices,
);

/** A remedy by kube-controller-manager, which must run. */
export const byController = (remedy: string, ...commands: readonly string[]): RemedySteps => ({
  remedy: `${checkRunning} ${remedy}`,
  commands: [getLease, ...commands],
  managed: managedControllers,
});

export const resync = byController(
  'Then make the controller sync the Service again: set an annotation on it, which has no other ' +
    `effect. ${readLog}`,
  touchService,
  getLog,
);

export const rewriteEndpoints = byController(
  'Then make the controller write the Endpoints again: set an annotation on the Service, which ' +
    `has no other effect. ${readLog} ` +
    lastResort('Endpoints', 'until it creates them again, clients of Endpoints find no address'),
  touchService,
  getLog,
);

const sliceLost = 'until it creates another, the endpoints of the slice receive no traffic';

export const rewriteSlice = byController(
  'Then make the controller write the slice again: set an annotation on the Service, which has ' +
    `no other effect. ${readLog} ${lastResort('EndpointSlice', sliceLost)}`,
  touchService,
  getLog,
);

export const rewriteMirror = byController(
  'Then make the mirroring controller write the slice again: set an annotation on the ' +
    `Endpoints. The controller copies it to the slice. ${readLog} ` +
    lastResort('EndpointSlice', sliceLost),
  touchEndpoints,
  getLog,
);

/** Changes a label, which controllers compare, and removes it again. */
export const relabelService = byController(
  'Then make the controller write the object again: add a label to the Service, and remove it ' +
    'after the next sync. Delete the object only as a last resort, and only while ' +
    'kube-controller-manager runs: until it creates the object again, endpoints are missing.',
  `kubectl -n {namespace} label service/{service} ${touch}`,
  'kubectl -n {namespace} label service/{service} endpoint-auditor-touched-',
);

const restart = [
  `kubectl -n kube-system get pod ${ofNode}`,
  `kubectl -n kube-system delete pod ${ofNode}`,
];
const restartText =
  'Restart kube-proxy on the node by deleting its pod. The DaemonSet creates another pod, ' +
  'which writes all rules again; the present rules stay until then. Do not use `kubectl ' +
  'rollout restart`, because it restarts kube-proxy on every node.';

/** Restarts kube-proxy on one node; `investigation` is what to find out. */
export const restartProxy = (investigation: string): RemedySteps => ({
  remedy: `${restartText} ${investigation}`,
  commands: restart,
  managed: managedProxy,
});

export const resyncNode = restartProxy(
  'If the finding comes back, read the log of kube-proxy and look for other programs that change ' +
    'rules.',
);

export const readProxyLog =
  `kubectl -n kube-system logs --tail=200 ` +
  `"$(kubectl -n kube-system get pod ${ofNode} -o name)"`;
