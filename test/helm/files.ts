// Where the chart is, and its parts as other tests need them.

import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';

import { format } from 'prettier';
import { parse, parseAllDocuments } from 'yaml';

import { newestVersion } from '../controlplane/binaries.ts';
import { goProgram } from '../processes.ts';

export const root = join(import.meta.dirname, '../..');
export const chart = join(root, 'helm/endpoint-auditor');
const golden = join(import.meta.dirname, 'golden');

/** Names of the examples, such as `kubeadm`; each is `ci/NAME-values.yaml`. */
export const examples = readdirSync(join(chart, 'ci'))
  .filter((name) => name.endsWith('-values.yaml'))
  .map((name) => name.replace('-values.yaml', ''));

export const valuesOf = (example: string): string => join(chart, `ci/${example}-values.yaml`);

export const goldenOf = (example: string): string => join(golden, `${example}.yaml`);

/** An object of Kubernetes; the fields that are looked at are as the chart writes them. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

/** The objects of a file with several documents; those without content are left out. */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null);
}

export const readYaml = (path: string): unknown => parse(readFileSync(path, 'utf8'));

/**
 * Values that the schema takes, those that it does not, and those that it takes and a template
 * refuses: the file, and what Helm must say.
 */
export function fixturesOf(
  kind: 'valid' | 'invalid' | 'refused',
): { path: string; expected: string[] }[] {
  const folder = join(import.meta.dirname, 'schema', kind);
  const names = readdirSync(folder).filter((name) => name.endsWith('.yaml'));
  return names.map((name) => {
    const path = join(folder, name);
    if (kind === 'valid') return { path, expected: [] };
    const text = readFileSync(path.replace('.yaml', '.expect.txt'), 'utf8');
    return { path, expected: text.trim().split('\n') };
  });
}

// The file tree of an image, made without a container engine and run as a pod would be: the last
// stage of a Containerfile says what is copied where, who runs it and what; its base is taken from
// this machine. The tree is the root directory of the process, read-only, with the files that are
// mounted into the pod. Needs root.

interface Image {
  readonly copies: readonly (readonly [from: string, to: string])[];
  readonly user: string;
  readonly entrypoint: readonly string[];
}

function imageOf(containerfile: string): Image {
  const text = readFileSync(join(root, containerfile), 'utf8');
  const last = text.slice(text.lastIndexOf('\nFROM '));
  const copies = [...last.matchAll(/^COPY --from=build (\S+) (\S+)$/gm)];
  const user = /^USER (.*)$/m.exec(last)?.[1] ?? '';
  const entrypoint = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(last)?.[1] ?? '[]') as string[];
  return { copies: copies.map(([, from = '', to = '']) => [from, to]), user, entrypoint };
}

/** The libraries of a program, as its loader finds them. */
function librariesOf(program: string): string[] {
  const text = execFileSync('ldd', [program], { encoding: 'utf8' });
  return [...text.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path);
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to, { recursive: true, dereference: true });
}

export interface Pod {
  readonly containerfile: 'Containerfile' | 'Containerfile.agent';
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Texts by path in the container. */
  readonly mounted: Readonly<Record<string, string>>;
  /** Capabilities that root keeps. */
  readonly capabilities: readonly string[];
  /** Number of user and group; `null`: that of the image. */
  readonly user: number | null;
  /** The group of the files of volumes, which each container is in; `null`: none. */
  readonly fsGroup: number | null;
  /** Names of empty volumes, which the containers share, by path. */
  readonly emptyDirs: Readonly<Record<string, string>>;
  /** The other containers. */
  readonly others: readonly Pod[];
}

/**
 * Starts a pod; `folder` becomes the root directory of its container. It is in a network namespace
 * where one is named. What it prints is shown. Its other containers end with it.
 */
export function startPod(folder: string, pod: Pod, space?: string): ChildProcess {
  const volumes = `${folder}-volumes`;
  const child = startContainer(folder, pod, volumes, space);
  for (const [index, one] of pod.others.entries()) {
    const other = startContainer(`${folder}-${index}`, one, volumes, space);
    child.once('exit', () => other.kill());
  }
  return child;
}

/** The file of a volume, as the kubelet writes it. */
function mount(path: string, text: string, group: number | null): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  if (group === null) return;
  chmodSync(path, 0o440);
  chownSync(path, 0, group);
}

function makeEmptyDir(path: string, group: number | null): void {
  mkdirSync(path, { recursive: true });
  chownSync(path, 0, group ?? 0);
  chmodSync(path, group === null ? 0o777 : 0o2777);
}

function startContainer(
  folder: string,
  pod: Pod,
  volumes: string,
  space: string | undefined,
): ChildProcess {
  const { copies, user, entrypoint } = imageOf(pod.containerfile);
  const { fsGroup, emptyDirs } = pod;
  for (const [from, to] of copies) {
    // The libraries of Node, which are below.
    if (to === '/') continue;
    // What the stage before has built is there already.
    const built = from.startsWith('/src/') ? join(root, from.slice('/src/'.length)) : null;
    copy(built ?? process.execPath, join(folder, to));
  }
  for (const [path, text] of Object.entries(pod.mounted)) {
    mount(join(folder, path), text, fsGroup);
  }
  for (const [path, name] of Object.entries(emptyDirs)) {
    makeEmptyDir(join(volumes, name), fsGroup);
    mkdirSync(join(folder, path), { recursive: true });
  }
  for (const name of ['proc', 'dev']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'dev/null'), '');
  const isDebian = pod.containerfile === 'Containerfile.agent';
  if (isDebian) {
    mkdirSync(join(folder, 'usr'));
    for (const name of ['bin', 'sbin', 'lib', 'lib64'])
      symlinkSync(`usr/${name}`, join(folder, name));
  } else {
    for (const path of librariesOf(process.execPath)) copy(path, join(folder, path));
  }
  const mounts = [
    'mount --bind "$0" "$0"',
    ...(isDebian ? ['mount --bind -o ro /usr "$0/usr"'] : []),
    'mount -t proc proc "$0/proc"',
    'mount --bind /dev/null "$0/dev/null"',
    'mount -o remount,bind,ro "$0"',
    ...Object.entries(emptyDirs).map(
      ([path, name]) => `mount --bind ${join(volumes, name)} "$0${path}"`,
    ),
  ];
  const kept = ['-all', ...pod.capabilities.map((name) => `+${name.toLowerCase()}`)].join(',');
  const bounded = ['/usr/bin/setpriv', '--no-new-privs', '--inh-caps=-all'];
  bounded.push(fsGroup === null ? '--clear-groups' : `--groups=${fsGroup}`);
  if (pod.user !== null) bounded.push(`--reuid=${pod.user}`, `--regid=${pod.user}`);
  const command = [
    ...(isDebian ? [...bounded, `--bounding-set=${kept}`] : []),
    ...entrypoint,
    ...pod.args,
  ];
  const script = `${mounts.join(' && ')} && exec chroot --userspec=${user} "$0" "$@"`;
  const options = ['--mount', '--propagation', 'private', 'sh', '-c', script, folder, ...command];
  const inside = space === undefined ? [] : ['ip', 'netns', 'exec', space];
  const [program = '', ...args] = [...inside, 'unshare', ...options];
  return spawn(program, args, {
    // Runtimes set HOME to that of the user, or to the root.
    env: {
      HOME: '/',
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      ...pod.env,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

// JSON schemas with which kubeconform validates manifests without a network: of Kubernetes from the
// OpenAPI document in the module of Kubernetes itself, of the Prometheus Operator and cert-manager
// from the CRDs in their modules. A field that a schema does not know is an error.

const modules = {
  kubernetes: `k8s.io/kubernetes@${newestVersion}`,
  'prometheus-operator': 'github.com/prometheus-operator/prometheus-operator@v0.85.0',
  'cert-manager': 'github.com/cert-manager/cert-manager@v1.21.2',
  'gateway-api': 'sigs.k8s.io/gateway-api@v1.3.0',
} as const;

/** Where Go keeps the sources of the module; it fetches them where they are not there yet. */
function sourcesOf(name: keyof typeof modules): string {
  const json = execFileSync(goProgram(), ['mod', 'download', '-json', modules[name]], {
    encoding: 'utf8',
  });
  return (JSON.parse(json) as { Dir: string }).Dir;
}

const crdFolders = [
  ['prometheus-operator', 'example/prometheus-operator-crd'],
  ['cert-manager', 'deploy/crds'],
  ['gateway-api', 'config/crd/standard'],
] as const;

/** The CRDs of the kinds that the chart makes. */
export function crds(): Manifest[] {
  const wanted =
    /(podmonitors|servicemonitors|prometheusrules|certificates|\.io_issuers|httproutes)\.yaml$/;
  return crdFolders.flatMap(([name, folder]) => {
    const path = join(sourcesOf(name), folder);
    const files = readdirSync(path).filter((file) => wanted.test(file));
    return files.flatMap((file) => manifestsOf(readFileSync(join(path, file), 'utf8')));
  });
}

type Schema = Record<string, unknown>;

const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Where a value is a number or a string, OpenAPI only says string. */
const either = { anyOf: [{ type: 'string' }, { type: 'number' }] };
const flexible = new Set([
  'io.k8s.apimachinery.pkg.util.intstr.IntOrString',
  'io.k8s.apimachinery.pkg.api.resource.Quantity',
]);

/** The same, with every object closed that names its fields; maps stay open. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (!isSchema(value)) return value;
  const parts = Object.fromEntries(Object.entries(value).map(([key, part]) => [key, closed(part)]));
  const isOpen =
    'additionalProperties' in value || value['x-kubernetes-preserve-unknown-fields'] === true;
  return isSchema(value.properties) && !isOpen ? { ...parts, additionalProperties: false } : parts;
}

/** The definitions that a schema refers to, those that they refer to, and so on. */
function definitionsOf(all: Schema, name: string, found: Schema = {}): Schema {
  if (name in found) return found;
  found[name] = flexible.has(name) ? either : closed(all[name]);
  const text = JSON.stringify(found[name]);
  for (const [, other = ''] of text.matchAll(/"#\/definitions\/([^"]+)"/g)) {
    definitionsOf(all, other, found);
  }
  return found;
}

interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** Writes the schemas of these kinds into a folder; returns the arguments for kubeconform. */
export function writeSchemas(folder: string, manifests: readonly Manifest[]): string {
  mkdirSync(folder, { recursive: true });
  const write = ({ group, version, kind }: Kind, schema: unknown): void => {
    // Of the core group kubeconform takes the version for the group.
    const name = `${group === '' ? version : group}_${version}_${kind.toLowerCase()}.json`;
    writeFileSync(join(folder, name), JSON.stringify(schema));
  };
  const swagger = join(sourcesOf('kubernetes'), 'api/openapi-spec/swagger.json');
  const { definitions } = JSON.parse(readFileSync(swagger, 'utf8')) as { definitions: Schema };
  const kinds = new Set(manifests.map(({ kind }) => kind));
  for (const [name, definition] of Object.entries(definitions)) {
    const known = (definition as Schema)['x-kubernetes-group-version-kind'] as Kind[] | undefined;
    for (const one of known ?? []) {
      if (!kinds.has(one.kind)) continue;
      const parts = definitionsOf(definitions, name);
      write(one, { $ref: `#/definitions/${name}`, definitions: parts });
    }
  }
  for (const { spec } of crds()) {
    const { group, names, versions } = spec as {
      group: string;
      names: { kind: string };
      versions: { name: string; schema: { openAPIV3Schema: unknown } }[];
    };
    for (const { name, schema } of versions) {
      write({ group, version: name, kind: names.kind }, closed(schema.openAPIV3Schema));
    }
  }
  return join(folder, '{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json');
}

// README.md of the chart: the table of values is read from values.yaml, as helm-docs does it, a row
// for each value with the comment `# --` above it.

interface Row {
  readonly name: string;
  /** As JSON. */
  readonly fallback: string;
  readonly text: string;
}

const valuesFile = join(chart, 'values.yaml');

function valueAt(name: string): unknown {
  let value = readYaml(valuesFile);
  for (const key of name.split('.')) value = (value as Readonly<Record<string, unknown>>)[key];
  return value;
}

/** A row for each value, in the order of values.yaml. */
export function valueRows(): Row[] {
  const rows: Row[] = [];
  let path: string[] = [];
  let text: string | null = null;
  for (const line of readFileSync(valuesFile, 'utf8').split('\n')) {
    const comment = /^ *# (?<begins>-- )?(?<said>.*)/.exec(line)?.groups;
    const key = /^(?<indent> *)(?<key>\w+):/.exec(line)?.groups;
    if (comment?.begins !== undefined) text = comment.said ?? '';
    else if (comment !== undefined && text !== null) text += ` ${comment.said ?? ''}`;
    if (key === undefined) continue;
    path = [...path.slice(0, (key.indent?.length ?? 0) / 2), key.key ?? ''];
    const name = path.join('.');
    if (text !== null) rows.push({ name, fallback: JSON.stringify(valueAt(name)), text });
    text = null;
  }
  return rows;
}

const cell = (text: string): string => text.replaceAll('|', '\\|');

const marks = ['<!-- values -->', '<!-- end of values -->'] as const;

/** The README with the table as it must be; all else as it is. */
export function readmeWith(text: string): Promise<string> {
  const rows = valueRows().map(
    ({ name, fallback, text: what }) => `| \`${name}\` | \`${cell(fallback)}\` | ${cell(what)} |`,
  );
  const table = ['| value | default | what |', '| --- | --- | --- |', ...rows].join('\n');
  const [before = '', rest = ''] = text.split(marks[0]);
  const after = rest.split(marks[1])[1] ?? '';
  const whole = `${before}${marks[0]}\n\n${table}\n\n${marks[1]}${after}`;
  return format(whole, { parser: 'markdown', printWidth: 100 });
}

// Compares the list of packages in dist/ with its content: the bundler says of each piece of the
// bundles from which file it is, and each package says itself which version it is.

interface Package {
  readonly name: string;
  readonly version: string;
}

const nameOf = ({ name, version }: Package): string => `${name} ${version}`;

const readJson = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));

/** Folders of packages that a bundle has pieces of. */
function foldersIn(text: string): Set<string> {
  const pieces = text.matchAll(/^ *\/\/ (?:\S*?\/)??(node_modules\/\S+)$/gm);
  const folders = [...pieces].map(([, path = '']) =>
    path.replace(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+).*$/, '$1'),
  );
  return new Set(folders);
}

/** In what dist/sbom.cdx.json is wrong; null: in nothing. */
export function sbomProblem(): string | null {
  const dist = join(root, 'dist');
  const bundles = readdirSync(dist).filter((name) => /\.[cm]js$/.test(name));
  const texts = bundles.map((name) => readFileSync(join(dist, name), 'utf8')).join('\n');
  const there = [...foldersIn(texts)].map((folder) =>
    nameOf(readJson(join(root, folder, 'package.json')) as Package),
  );
  const { components } = readJson(join(dist, 'sbom.cdx.json')) as {
    components: Package[];
  };
  const listed = components.map(nameOf);
  const problems = [
    ...there.filter((one) => !listed.includes(one)).map((one) => `${one} is not listed`),
    ...listed.filter((one) => !there.includes(one)).map((one) => `${one} is not there`),
    ...(there.length < 50 ? [`only ${there.length} packages are there`] : []),
  ];
  return problems.length === 0 ? null : problems.join('\n');
}
