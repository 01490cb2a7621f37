import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import * as operator from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1';
import { Ajv } from 'ajv';
import * as apps from 'kubernetes-models/apps/v1';
import * as networking from 'kubernetes-models/networking.k8s.io/v1';
import * as policy from 'kubernetes-models/policy/v1';
import * as rbac from 'kubernetes-models/rbac.authorization.k8s.io/v1';
import * as core from 'kubernetes-models/v1';
import { describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';

import { alerts, folder as alertsFolder } from '../alerts/alertmanager.ts';
import type { Manifest } from './files.ts';
import {
  chart,
  examples,
  fixturesOf,
  goldenOf,
  manifestsOf,
  readmeWith,
  readYaml,
  root,
  valueRows,
  valuesOf,
} from './files.ts';

const read = (path: string): string => readFileSync(path, 'utf8');
const update = process.env.UPDATE !== undefined;

type Values = Readonly<Record<string, unknown>>;

const values = readYaml(join(chart, 'values.yaml')) as Values;
const schema = JSON.parse(read(join(chart, 'values.schema.json'))) as Values;
const validate = new Ajv({ allErrors: true, allowUnionTypes: true }).compile(schema);

// --- the parts of the chart that come from elsewhere ---

describe.each([
  ['alerts', alertsFolder, '.yaml'],
  ['dashboards', join(root, 'dashboards'), '.json'],
])('files/%s', (name, from, ending) => {
  const copies = join(chart, 'files', name);
  const named = (path: string) => readdirSync(path).filter((file) => file.endsWith(ending));

  test('are those of the repository (UPDATE=1 copies them)', () => {
    if (update)
      for (const file of named(from)) writeFileSync(join(copies, file), read(join(from, file)));
    expect(named(copies)).toEqual(named(from));
    for (const file of named(from)) expect(read(join(copies, file))).toBe(read(join(from, file)));
  });
});

test('README.md documents every value (UPDATE=1 writes it)', async () => {
  const path = join(chart, 'README.md');
  const want = await readmeWith(read(path));
  if (update) writeFileSync(path, want);
  expect(read(path)).toBe(want);
});

test('the versions of the chart and of the program are one', () => {
  const { version } = JSON.parse(read(join(root, 'package.json'))) as { version: string };
  expect(readYaml(join(chart, 'Chart.yaml'))).toMatchObject({ version, appVersion: version });
});

// --- values ---

/** Names of all values, down to where the schema lists no fields. */
function namesOf(of: Values, { properties }: Values, above = ''): string[] {
  const fields = properties as Record<string, Values> | undefined;
  return Object.entries(of).flatMap(([key, value]) => {
    const field = fields?.[key];
    if (field === undefined) return [`${above}${key} is not in the schema`];
    return field.properties !== undefined && Object.keys(value as Values).length > 0
      ? namesOf(value as Values, field, `${above}${key}.`)
      : [`${above}${key}`];
  });
}

test('values, schema and README name the same', () => {
  expect(validate(values)).toBe(true);
  expect(namesOf(values, schema)).toEqual(valueRows().map(({ name }) => name));
  const fields = ({ properties = {} }: Values): string[] => Object.keys(properties as Values);
  // Helm gives this chart the condition by which another chart depends on it.
  expect(fields(schema).sort()).toEqual([...Object.keys(values), 'enabled'].sort());
});

test('the schema takes and refuses what it must', () => {
  for (const { path } of [...fixturesOf('valid'), ...fixturesOf('refused')])
    expect([path, validate(readYaml(path))]).toEqual([path, true]);
  for (const { path } of fixturesOf('invalid')) {
    expect([path, validate(readYaml(path))]).toEqual([path, false]);
  }
  for (const example of examples) expect(validate(readYaml(valuesOf(example)))).toBe(true);
});

test('thresholds are those of the alerts', () => {
  const { thresholds } = values.prometheusRule as { thresholds: Record<string, number> };
  const written = alerts.flatMap(({ expr }) =>
    [...expr.matchAll(/([0-9.e]+) # threshold: (\w+)/g)].map(([, value, name]) => [
      name,
      Number(value),
    ]),
  );
  expect(Object.fromEntries(written)).toEqual(thresholds);
});

// --- what helm renders of the examples ---

const models: Readonly<Record<string, object>> = {
  v1: core,
  'apps/v1': apps,
  'networking.k8s.io/v1': networking,
  'policy/v1': policy,
  'rbac.authorization.k8s.io/v1': rbac,
  'monitoring.coreos.com/v1': operator,
};

type Model = new (manifest: Manifest) => { validate(): void };

/** Throws where an object is not valid by the model of its kind. */
function validateByModel(manifest: Manifest): void {
  const model = (models[manifest.apiVersion] as Record<string, Model>)[manifest.kind];
  if (model === undefined) throw new Error(`No model of ${manifest.apiVersion} ${manifest.kind}`);
  new model(manifest).validate();
}

test.each([
  ['containerPort: 9465', "containerPort: 'metrics'"],
  ['for: 2m', 'for: soon'],
  ['clusterIP: None', 'clusterIP: [None]'],
  ['resources: [pods', 'resources: pods #'],
])('a model refuses %s that is %s', (right, wrong) => {
  const text = examples.map((one) => read(goldenOf(one))).find((one) => one.includes(right)) ?? '';
  const spoilt = manifestsOf(text.replace(right, wrong)).filter(
    ({ apiVersion }) => apiVersion in models,
  );
  expect(() => {
    for (const manifest of spoilt) validateByModel(manifest);
  }).toThrow();
});

interface Pod {
  readonly hostNetwork?: boolean;
  readonly automountServiceAccountToken: boolean;
  readonly securityContext?: Values;
  readonly nodeSelector?: Values;
  readonly tolerations?: readonly Values[];
  readonly volumes?: readonly (Values & { readonly hostPath?: { readonly path: string } })[];
  readonly containers: readonly {
    readonly name: string;
    readonly ports?: readonly object[];
    readonly args: readonly string[];
    readonly env?: readonly { readonly name: string }[];
    readonly resources?: { readonly limits?: Values };
    readonly securityContext: Values;
    readonly volumeMounts: readonly { readonly name: string; readonly readOnly?: boolean }[];
  }[];
}

interface Claim {
  readonly kind?: string;
  readonly spec: {
    readonly storageClassName?: string;
    readonly resources: { readonly requests: { readonly storage: string } };
  };
}

/** The volume and the claims of the history in each example that has one. */
const histories: Readonly<Record<string, unknown>> = {
  kind: [{ name: 'history', emptyDir: { sizeLimit: '2560Mi' } }, []],
  kubeadm: [
    { name: 'history', persistentVolumeClaim: { claimName: 'endpoint-auditor-history' } },
    [['PersistentVolumeClaim', undefined, '2560Mi']],
  ],
  k3s: [{ name: 'history', persistentVolumeClaim: { claimName: 'auditor-history' } }, []],
  sharded: [null, [['template', 'fast', '12800Mi']]],
};

const podOf = ({ spec }: Manifest): Pod => (spec as { template: { spec: Pod } }).template.spec;

const flags = new Map(
  ['serve', 'agent'].map((command) => {
    const main = join(root, 'src/main.ts');
    const help = execFileSync(process.execPath, [main, command, '--help'], { encoding: 'utf8' });
    return [command, new Set([...help.matchAll(/^ +(--[\w.-]+)/gm)].map(([, flag]) => flag))];
  }),
);

const reviews = [
  ['authentication.k8s.io', 'tokenreviews'],
  ['authorization.k8s.io', 'subjectaccessreviews'],
].map(([group, resource]) => ({ apiGroups: [group], resources: [resource], verbs: ['create'] }));

describe.each(examples)('%s', (example) => {
  const manifests = manifestsOf(read(goldenOf(example)));
  const of = (...kinds: string[]) => manifests.filter(({ kind }) => kinds.includes(kind));
  const server = of('Deployment', 'StatefulSet').map(podOf);
  const agents = of('DaemonSet').map(podOf);

  test('its objects are valid by the models of their kinds', () => {
    for (const manifest of manifests) {
      // kubeconform validates those of cert-manager and of the Gateway API.
      if (/^(?:cert-manager|gateway\.networking)\./.test(manifest.apiVersion)) continue;
      expect(() => {
        validateByModel(manifest);
      }).not.toThrow();
    }
  });

  test('the program knows every argument', () => {
    for (const { containers } of [...server, ...agents]) {
      for (const { args } of containers) {
        const [command = '', ...rest] = args;
        const unknown = rest.filter((arg) => flags.get(command)?.has(arg.split('=')[0]) !== true);
        expect(unknown).toEqual([]);
      }
    }
  });

  test('no object has a key twice', () => {
    const documents = parseAllDocuments(read(goldenOf(example)));
    expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
  });

  test('the pod of helm test goes to the nodes of the server', () => {
    const nodes = server.map(({ nodeSelector, tolerations }) => ({ nodeSelector, tolerations }));
    for (const { spec } of of('Pod')) {
      const { nodeSelector, tolerations } = spec as Pod;
      expect([{ nodeSelector, tolerations }]).toEqual(nodes);
    }
  });

  test('no container has a variable twice', () => {
    const found = [...server, ...agents].flatMap(({ containers }) =>
      containers.map(({ env = [] }) => env.map(({ name }) => name)),
    );
    expect(found).toEqual(found.map((names) => [...new Set(names)]));
  });

  test('reviews of tokens are permitted only with agents or web.authFilter', () => {
    const isOn = example === 'openshift';
    const isForAgents = ['kubeadm', 'kind', 'k3s', 'sharded', 'cilium'].includes(example);
    const found = of('ClusterRole').filter(({ rules }) =>
      JSON.stringify(rules).includes('reviews'),
    );
    const want = isOn ? [reviews] : isForAgents ? [reviews.slice(0, 1)] : [];
    expect(found.map(({ rules }) => rules)).toEqual(want);
    const readers = of('ClusterRole').filter(({ rules }) => JSON.stringify(rules).includes('URLs'));
    expect(readers.map(({ rules }) => rules)).toEqual(
      isOn
        ? ['/metrics', '/endpoint-auditor'].map((path) => [
            { nonResourceURLs: [path], verbs: ['get'] },
          ])
        : [],
    );
  });

  test('reading five resources is all else that is permitted, and Events where they are on', () => {
    const isNamespaced = example === 'namespaced';
    const endpoints = example === 'sharded' ? [] : ['endpoints'];
    const verbs = ['get', 'list', 'watch'];
    const events = {
      apiGroups: ['events.k8s.io'],
      resources: ['events'],
      verbs: ['create', 'patch'],
    };
    const rules = [
      { apiGroups: [''], resources: ['pods', 'services', ...endpoints], verbs },
      { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs },
      ...(example === 'sharded' ? [events] : []),
    ];
    const nodes = { apiGroups: [''], resources: ['nodes'], verbs };
    const isOther = ({ metadata }: Manifest) => !/-reviews$|-reader$/.test(metadata.name);
    const roles = of('Role', 'ClusterRole').filter(isOther);
    const found = roles.map((role) => [
      role.kind,
      (role.metadata as { namespace?: string }).namespace ?? '',
      role.rules,
    ]);
    expect(found).toEqual(
      isNamespaced
        ? ['shop', 'bank'].map((namespace) => ['Role', namespace, rules])
        : [['ClusterRole', '', [nodes, ...rules]]],
    );
    const bindings = of('RoleBinding', 'ClusterRoleBinding').filter(isOther);
    expect(bindings).toHaveLength(found.length);
    for (const { subjects } of bindings) {
      expect(subjects).toEqual([
        { kind: 'ServiceAccount', name: 'endpoint-auditor', namespace: 'monitoring' },
      ]);
    }
  });

  test('not everyone in the cluster may connect to the server', () => {
    const policies = of('NetworkPolicy');
    expect(policies).toHaveLength(1);
    for (const { spec } of policies) {
      const { policyTypes, ingress } = spec as {
        policyTypes: string[];
        ingress: { from?: { ipBlock?: { cidr: string }; namespaceSelector?: object }[] }[];
      };
      expect(policyTypes).toContain('Ingress');
      for (const { from = [] } of ingress) {
        // A rule without sources admits all.
        expect(from.length).toBeGreaterThan(0);
        for (const { ipBlock, namespaceSelector } of from) {
          expect(ipBlock?.cidr ?? '').not.toMatch(/\/0$/);
          expect(namespaceSelector).not.toEqual({});
        }
      }
    }
  });

  test('the server has no rights on its node', () => {
    expect(server.length).toBe(1);
    for (const { containers, securityContext, hostNetwork } of server) {
      expect(hostNetwork).toBeUndefined();
      expect(securityContext).toMatchObject({ runAsNonRoot: true });
      for (const { securityContext: own } of containers) {
        expect(own).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
      }
    }
  });

  test('the history is in a volume of its own, if it is on', () => {
    const [set] = of('Deployment', 'StatefulSet');
    const spec = set?.spec as { volumeClaimTemplates?: readonly Claim[] } | undefined;
    const volumes = server.flatMap((pod) => pod.volumes ?? []);
    const found = [
      volumes.find(({ name }) => name === 'history') ?? null,
      [...of('PersistentVolumeClaim'), ...(spec?.volumeClaimTemplates ?? [])].map((it) => {
        const { storageClassName, resources } = (it as Claim).spec;
        return [it.kind ?? 'template', storageClassName, resources.requests.storage];
      }),
    ];
    expect(found).toEqual(histories[example] ?? [null, []]);
    const args = server.flatMap(({ containers }) => containers.flatMap((it) => it.args));
    const folder = args.find((arg) => arg.startsWith('--history='));
    expect(folder).toBe(
      example in histories ? '--history=/var/lib/endpoint-auditor/history' : undefined,
    );
  });

  test('an agent has no API token, and no folder of the host but the maps of Cilium', () => {
    expect(agents.length).toBe(
      ['kubeadm', 'kind', 'eks', 'k3s', 'sharded', 'cilium'].includes(example) ? 1 : 0,
    );
    const folders = example === 'cilium' ? ['/sys/fs/bpf'] : [];
    for (const { automountServiceAccountToken, volumes = [], containers } of agents) {
      expect(automountServiceAccountToken).toBe(false);
      expect(volumes.flatMap(({ hostPath }) => hostPath?.path ?? [])).toEqual(folders);
      for (const volume of volumes) {
        if (volume.projected === undefined) continue;
        const path = 'token';
        const token = { audience: 'endpoint-auditor', expirationSeconds: 3600, path };
        const sources = [{ serviceAccountToken: token }];
        expect(volume.projected).toMatchObject({ sources });
      }
      expect(containers.map(({ name }) => name)).toEqual(['collector', 'agent']);
      const limits = containers.map(({ resources }) => resources?.limits?.memory);
      expect(limits).toEqual(['512Mi', '512Mi']);
    }
  });

  test('of an agent, the container with capabilities has no port and takes no files', () => {
    const common = { readOnlyRootFilesystem: true, allowPrivilegeEscalation: false };
    for (const { name, ports, args, securityContext, volumeMounts } of agents.flatMap(
      ({ containers }) => containers,
    )) {
      const isCollector = name === 'collector';
      expect(ports?.length ?? 0).toBe(isCollector ? 0 : 1);
      expect(args.some((text) => text.startsWith('--listen'))).toBe(!isCollector);
      const isCilium = example === 'cilium';
      const own = isCilium ? ['run', 'bpf'] : ['run'];
      if (isCollector) expect(volumeMounts.map((mount) => mount.name)).toEqual(own);
      expect(volumeMounts.every(({ name: volume, readOnly }) => volume !== 'bpf' || readOnly)).toBe(
        true,
      );
      const added = isCilium ? ['BPF'] : ['NET_ADMIN', 'NET_RAW'];
      expect(securityContext).toEqual({
        ...common,
        ...(isCollector
          ? { runAsUser: 0, runAsGroup: 0 }
          : { runAsNonRoot: true, runAsUser: 65_532, runAsGroup: 65_532 }),
        capabilities: { drop: ['ALL'], ...(isCollector && { add: added }) },
        seccompProfile: { type: 'RuntimeDefault' },
      });
    }
  });

  test('selectors find their pods, and nothing that changes is in them', () => {
    for (const { spec } of of('Deployment', 'StatefulSet', 'DaemonSet')) {
      const { selector, template } = spec as {
        selector: { matchLabels: Record<string, string> };
        template: { metadata: { labels: Record<string, string> } };
      };
      expect(template.metadata.labels).toMatchObject(selector.matchLabels);
      expect(Object.keys(selector.matchLabels).sort()).toEqual(
        ['component', 'instance', 'name'].map((label) => `app.kubernetes.io/${label}`),
      );
    }
  });
});
