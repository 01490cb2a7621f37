// helm and kubeconform, built by Go from their modules, once per version, and kept in the user's
// cache ($XDG_CACHE_HOME).

import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';

import { parseAllDocuments, visit } from 'yaml';

import { newestVersion } from '../controlplane/binaries.ts';
import { folder as alerts, ruleFiles } from '../alerts/alertmanager.ts';
import { cacheFolder, goProgram } from '../processes.ts';
import { programOf } from '../prometheus/server.ts';
import {
  chart,
  examples,
  fixturesOf,
  goldenOf,
  manifestsOf,
  root,
  sbomProblem,
  valuesOf,
  writeSchemas,
} from './files.ts';
import { checkChart, checkInstall } from './install.ts';
import {
  checkAuthFilter,
  checkRotation,
  checkNamespaces,
  checkPodSecurity,
  checkShards,
  checkShardsUpgrade,
  checkUpgrade,
} from './upgrade.ts';

const runOrThrow = promisify(execFile);

const programs = {
  helm: { version: 'v4.3.1', module: 'helm.sh/helm/v4/cmd/helm' },
  kubeconform: { version: 'v0.8.0', module: 'github.com/yannh/kubeconform/cmd/kubeconform' },
} as const;

/** The path of the program, which is built where it is nowhere yet; that takes minutes. */
async function builtProgram(name: keyof typeof programs): Promise<string> {
  const { version, module } = programs[name];
  const folder = cacheFolder(name, version);
  const path = join(folder, name);
  if (existsSync(path)) return path;
  process.stderr.write(`Building ${name} ${version}\n`);
  await mkdir(folder, { recursive: true });
  // In a temporary folder, so that no process finds an incomplete binary.
  const building = await mkdtemp(join(folder, 'build-'));
  try {
    await runOrThrow(goProgram(), ['install', `${module}@${version}`], {
      env: { ...process.env, GOBIN: building, GOFLAGS: '' },
    });
    await rename(join(building, name), path);
  } finally {
    await rm(building, { recursive: true, force: true });
  }
  return path;
}

// The chart and the alerts before the programs that will read them: promtool, helm and kubeconform,
// each built from its Go module, and a real API server. `npm run chart`; with --update, what helm
// renders of the examples becomes what is expected of it. --only=NAME,NAME runs some suites of
// those that need the API server: install, upgrade, shards, agents, security, namespaces, access
// and rotation.

const update = process.argv.includes('--update');
const [, only] = /^--only=(.*)$/m.exec(process.argv.join('\n')) ?? [];
const counts = { passed: 0, failed: 0 };

function check(name: string, problem: string | null): void {
  if (problem === null) counts.passed += 1;
  else counts.failed += 1;
  process.stdout.write(problem === null ? `ok      ${name}\n` : `FAILED  ${name}\n${problem}\n`);
}

interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly said: string;
}

function run(program: string, args: readonly string[], input = ''): Ran {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', input });
  if (error !== undefined) throw error;
  return { status, stdout, said: stdout + stderr };
}

const unless = (isRight: boolean, said: string): string | null => (isRight ? null : said);

async function checkAlerts(): Promise<void> {
  const promtool = await programOf('promtool');
  const files = ruleFiles.map((name) => join(alerts, name));
  const rules = run(promtool, ['check', 'rules', '--lint=all', '--lint-fatal', ...files]);
  check('promtool check rules', unless(rules.status === 0, rules.said));
  for (const name of readdirSync(join(alerts, 'tests'))) {
    const tests = run(promtool, ['test', 'rules', join(alerts, 'tests', name)]);
    check(`promtool test rules ${name}`, unless(tests.status === 0, tests.said));
  }
}

/** As for a cluster that has all that the chart may use. */
const render = (helm: string, values: string): Ran =>
  run(helm, [
    ...['template', 'endpoint-auditor', chart, '--namespace', 'monitoring'],
    ...['--kube-version', newestVersion, '--values', values],
  ]);

function checkExample(helm: string, example: string): void {
  const lint = run(helm, ['lint', chart, '--strict', '--values', valuesOf(example)]);
  check(`helm lint ${example}`, unless(lint.status === 0, lint.said));
  const { status, stdout, said } = render(helm, valuesOf(example));
  const path = goldenOf(example);
  if (update && status === 0) writeFileSync(path, stdout);
  const want = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const problem = status === 0 ? `It is not ${path}; npm run chart -- --update writes it` : said;
  check(`helm template ${example}`, unless(status === 0 && stdout === want, problem));
}

function checkFixtures(helm: string): void {
  for (const { path } of fixturesOf('valid')) {
    const { status, said } = render(helm, path);
    check(`values ${basename(path)} are taken`, unless(status === 0, said));
  }
  for (const { path, expected } of [...fixturesOf('invalid'), ...fixturesOf('refused')]) {
    const { status, said } = render(helm, path);
    const isRefused = status !== 0 && expected.every((line) => said.includes(line));
    check(`values ${basename(path)} are refused`, unless(isRefused, `${status ?? ''} ${said}`));
  }
}

/** Words that are no texts without quotes, at least in YAML 1.1. */
const words = ['2026', 'yes', 'on', 'null', '1e3', '0x10', '012', '2026-11-28'];

/** Release, namespace and values that are such words: each must stay a text. */
function checkQuotes(helm: string): void {
  for (const { path } of fixturesOf('valid').filter(({ path }) => path.includes('quot'))) {
    const values = readFileSync(path, 'utf8');
    for (const word of words) {
      const place = ['template', word, chart, '--namespace', word];
      const text = values.replaceAll("'2026", `'${word}`);
      const { status, stdout, said } = run(helm, [...place, '--values', '-'], text);
      const lines = (['1.1', '1.2'] as const).flatMap((version) =>
        parseAllDocuments(stdout, { version }).flatMap((one) => linesWithout(one, word, stdout)),
      );
      const isRight = status === 0 && stdout.includes(`"${word}"`) && lines.length === 0;
      check(`${word} in ${basename(path)} stays a text`, unless(isRight, lines.join('\n') || said));
    }
  }
}

/** The lines of a document that have the word without quotes, as something else than a text. */
function linesWithout(document: Parameters<typeof visit>[0], word: string, text: string): string[] {
  const lines: string[] = [];
  visit(document, {
    Scalar(_key, { value, source, range }) {
      const to = range?.[1] ?? 0;
      const isOther = source === word && typeof value !== 'string';
      if (isOther) lines.push(text.slice(text.lastIndexOf('\n', to - 1) + 1, to));
    },
  });
  return lines;
}

async function checkManifests(folder: string): Promise<void> {
  const kubeconform = await builtProgram('kubeconform');
  const texts = examples.map((example) => readFileSync(goldenOf(example), 'utf8'));
  const location = writeSchemas(folder, texts.flatMap(manifestsOf));
  const validate = (text: string): Ran =>
    run(kubeconform, ['-strict', '-summary', '-schema-location', location, '-'], text);
  for (const [index, text] of texts.entries()) {
    const { status, said } = validate(text);
    check(`kubeconform ${examples[index] ?? ''}`, unless(status === 0, said));
  }
  const wrong = [
    ['containerPort: 9465', "containerPort: 'metrics'"],
    ['honorLabels: true', 'honourLabels: true'],
    ['for: 2m', 'for: soon'],
    ['dnsNames: [', 'dnsName: ['],
  ] as const;
  for (const [right, spoilt] of wrong) {
    const text = texts.find((one) => one.includes(right))?.replace(right, spoilt) ?? '';
    const { status, said } = validate(text);
    check(`kubeconform refuses ${spoilt}`, unless(text !== '' && status === 1, said));
  }
}

const folder = mkdtempSync(join(tmpdir(), 'chart-'));
try {
  const helm = await builtProgram('helm');
  if (only === undefined) {
    await checkAlerts();
    for (const example of examples) checkExample(helm, example);
    checkFixtures(helm);
    checkQuotes(helm);
    await checkManifests(folder);
  }
  execFileSync(process.execPath, [join(root, 'esbuild.config.ts')]);
  check('sbom.cdx.json lists what is built, and no more', sbomProblem());
  const suites = {
    install: checkChart,
    upgrade: checkUpgrade,
    shards: checkShardsUpgrade,
    agents: checkShards,
    security: checkPodSecurity,
    namespaces: checkNamespaces,
    access: checkAuthFilter,
    rotation: checkRotation,
  };
  const chosen = Object.entries(suites).filter(([name]) => only?.split(',').includes(name) ?? true);
  await checkInstall(
    helm,
    join(folder, 'install'),
    check,
    chosen.map(([, suite]) => suite),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.stdout.write(`${counts.passed} passed, ${counts.failed} failed\n`);
process.exitCode = counts.failed === 0 ? 0 : 1;
