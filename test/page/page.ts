// What the checks of the pages share: servers in processes of their own, and a browser whose
// complaints are kept.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { createInterface } from 'node:readline';

import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { chromium } from 'playwright-core';

import type { Resource } from '../../src/model/objects.ts';
import {
  createServer,
  keyPath,
  listen,
  type Listener,
  type Raw,
  realClock,
} from '../apiserver/server.ts';
import { browserProgram, freePort } from '../processes.ts';

const root = join(import.meta.dirname, '../..');

interface Server {
  readonly url: string;
  /** Writes a line and returns the next that is printed. */
  ask(line: string): Promise<string>;
  stop(): void;
}

/** Starts a program and waits for the line with its port. */
async function startServer(args: readonly string[], port: RegExp): Promise<Server> {
  const child: ChildProcess = spawn(process.execPath, [...args], {
    cwd: root,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error('No pipes');
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error('The server ended');
    return value;
  };
  for (;;) {
    const found = port.exec(await next())?.[1];
    if (found === undefined) continue;
    return {
      url: `http://127.0.0.1:${found}`,
      ask(line) {
        stdin.write(`${line}\n`);
        return next();
      },
      stop: () => void child.kill(),
    };
  }
}

/** The program itself, with these arguments and any free port. */
const serve = (...args: readonly string[]): Promise<Server> =>
  startServer(['src/main.ts', 'serve', '--listen', '127.0.0.1:0', ...args], /http:.*?:(\d+)/);

/** Chromium as the system has it; throws where there is none. */
function startBrowser(): Promise<Browser> {
  // Fonts are hinted alike everywhere, so that pictures change only with the pages.
  const args = ['--no-sandbox', '--font-render-hinting=none', '--disable-lcd-text'];
  return chromium.launch({ executablePath: browserProgram(), args });
}

/** A page whose errors, on the console or not, are put into `complaints`. */
async function openPage(
  browser: Browser,
  complaints: string[],
  options: BrowserContextOptions = {},
): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  // A busy machine may need a minute for the process that opens a moment.
  page.setDefaultTimeout(120_000);
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    complaints.push(`console at ${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`error at ${page.url()}: ${error.message}`));
  page.on('dialog', (dialog) => {
    complaints.push(`dialog at ${page.url()}`);
    void dialog.dismiss();
  });
  return page;
}

// A recording of a cluster whose names are scripts: no API server admits them, but a file may say
// anything, and pages must show it all the same.

const name = '<img src=x onerror=alert(2)>"\'<script>globalThis.taken=true<script>';

const meta = { name, namespace: 'shop', uid: 'u', resourceVersion: '1' };
const labels = { app: name };

const objects: Readonly<Record<string, object>> = {
  nodes: { metadata: { name, uid: 'n', resourceVersion: '1' } },
  services: {
    metadata: { ...meta, labels },
    spec: { clusterIP: '10.96.0.1', ipFamilies: ['IPv4'], selector: labels, ports: [] },
  },
  pods: {
    metadata: { ...meta, labels },
    spec: { nodeName: name, containers: [] },
    status: { podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'Ready', status: 'True' }] },
  },
  endpoints: {
    metadata: meta,
    subsets: [{ addresses: [{ ip: '10.0.0.9', nodeName: name }], ports: [{ name, port: 1 }] }],
  },
  endpointslices: {
    metadata: {
      ...meta,
      name: `${name}-1`,
      labels: {
        'kubernetes.io/service-name': name,
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
      },
    },
    addressType: 'IPv4',
    endpoints: [{ addresses: ['10.0.0.9'], conditions: { ready: true }, nodeName: name }],
    ports: [{ name, port: 1, protocol: 'TCP' }],
  },
};

/** Writes it, and says which name everything in it has. */
function recordHostile(): { file: string; name: string } {
  const resources = Object.keys(objects);
  const lines: unknown[] = [
    { kind: 'header', format: 1, at: 10, kubernetes: name, resources },
    ...resources.flatMap((resource) => [
      { kind: 'object', at: 10, resource, type: 'SYNC', object: objects[resource] },
      { kind: 'synced', at: 10, resource },
    ]),
    { kind: 'end', at: 60 },
  ];
  const file = join(mkdtempSync(join(tmpdir(), 'hostile-')), 'hostile.ndjson');
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return { file, name };
}

// The pages in a real browser, on the running replay of the recording and on a made-up fleet of ten
// thousand Services: `npm run page` checks, `npm run page -- --pictures` also takes the pictures of
// docs/images. One line a check; exit code 1 where one fails.

const images = join(import.meta.dirname, '../../docs/images');
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let failed = 0;

function check(what: string, problems: readonly string[]): void {
  if (problems.length > 0) failed++;
  process.stdout.write(`${problems.length === 0 ? 'ok  ' : 'FAIL'} ${what}\n`);
  for (const one of problems.slice(0, 10)) process.stdout.write(`     ${one}\n`);
}

const expected = (what: string, is: boolean): string[] => (is ? [] : [what]);

/** A moment of the recording in which a few of its findings are open. */
const moment = 1_795_258_700;

const paths = [
  '/',
  '/findings',
  '/findings?state=all',
  '/services',
  '/services/shop/search',
  '/services/payments/ledger',
  '/nodes',
  '/nodes/node-c?port=shop/checkout:http',
  '/services/shop/nobody',
  '/services/shop/checkout',
  '/nodes/node-a',
  '/search?q=check',
  '/search?q=10.244.99.99',
  '/pods/shop/none',
  `/?at=${String(moment)}`,
  `/services/shop/checkout?at=${String(moment)}`,
  `/nodes/node-c?at=${String(moment)}`,
  '/docs/README.md',
  '/docs/findings.md',
  '/docs/metrics.md',
  '/docs/runbook.md',
];

/** Lets axe-core look at a page as it is. */
async function violations(page: Page): Promise<string[]> {
  // The policy of the pages admits no script but theirs; the debugger is not subject to it.
  if ((await page.evaluate("'axe' in globalThis")) !== true) await page.evaluate(axe);
  interface Found {
    violations: { id: string; nodes: { html: string }[] }[];
  }
  // To describe what is right, too, takes most of its time.
  const found = await page.evaluate<Found>("axe.run(document, { resultTypes: ['violations'] })");
  return found.violations.map(
    ({ id, nodes }) => `${page.url()}: ${id}: ${nodes[0]?.html.slice(0, 120) ?? ''}`,
  );
}

/** Whether it comes before the limit of the page. */
const comes = (found: Promise<unknown>): Promise<boolean> =>
  found.then(
    () => true,
    () => false,
  );

/** During the replay of the recording: findings appear on the page without a reload. */
async function watchLive(browser: Browser, complaints: string[]): Promise<void> {
  // At this speed, the recording needs more than two minutes after the finding.
  const server = await serve('--demo', '--speed', '2');
  const page = await openPage(browser, complaints);
  await page.goto(`${server.url}/`);
  const advances = async (): Promise<boolean> => {
    const hasNotText = (await page.textContent('#moment')) ?? '';
    return comes(page.locator('#moment').filter({ hasNotText }).waitFor());
  };
  // It stays open until the recording ends.
  const finding = '.finding:has-text("10.244.99.99")';
  const seen = await comes(page.waitForSelector(finding));
  check('a new finding appears on the open page', expected('it does not', seen));
  const state = await page.getAttribute('#live', 'data-state');
  const goes = await advances();
  check('the page says that it replays a recording, and its clock advances', [
    ...expected(`state ${String(state)}`, state === 'replay'),
    ...expected('the clock does not advance', goes),
  ]);
  await page.locator(finding).locator('a.name').first().focus();
  const focused = await page.evaluate('document.activeElement.textContent');
  const changes = (await advances()) && (await advances());
  const kept = await page.evaluate('document.activeElement.textContent');
  check('an element keeps the focus while the page changes', [
    ...expected('the page does not change', changes),
    ...expected(`${String(focused)} became ${String(kept)}`, focused === kept),
  ]);
  await page.context().close();
  server.stop();
}

async function useKeyboard(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const page = await openPage(browser, complaints);
  await page.goto(`${url}/findings`);
  await page.keyboard.press('/');
  await page.keyboard.type('ledger');
  // On a busy machine a part of the word may be a filter before.
  const typed = await comes(page.waitForURL(({ href }) => href.endsWith('/findings?q=ledger')));
  const others = page.locator('.finding').filter({ hasNotText: 'ledger' });
  const gone = await comes(others.first().waitFor({ state: 'detached' }));
  check('the findings are filtered while one types', [
    ...expected(page.url(), typed),
    ...expected('others are still shown', gone),
  ]);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL('**/services/payments/ledger');
  check('arrows and Enter lead to the Service', []);
  await page.goto(`${url}/`);
  await page.keyboard.press('Tab');
  const skip = await page.evaluate('document.activeElement.textContent');
  check(
    'the first Tab offers to skip to the content',
    expected(String(skip), skip === 'Skip to content'),
  );
  await page.context().close();
}

async function copyFinding(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const page = await openPage(browser, complaints);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${url}/findings?q=10.244.99.99`);
  await page.click('.finding .copy');
  const text = String(await page.evaluate('navigator.clipboard.readText()'));
  const lines = text.split('\n');
  check('a finding is copied as text with its address', [
    ...expected(text, (lines[0] ?? '').includes('payments/ledger')),
    ...expected(text, text.includes('10.244.99.99')),
    ...expected(text, lines.at(-1) === `${url}/services/payments/ledger`),
  ]);
  await page.context().close();
}

async function searchAll(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const page = await openPage(browser, complaints);
  await page.goto(`${url}/`);
  await page.fill('header input[type=search]', 'payments/ledger');
  await page.keyboard.press('Enter');
  await page.waitForURL('**/services/payments/ledger');
  check('the search of the header leads to a Service', []);
  await page.context().close();
}

async function readWithoutScript(browser: Browser, url: string): Promise<void> {
  const page = await openPage(browser, [], { javaScriptEnabled: false });
  const problems: string[] = [];
  for (const [path, text] of [
    ['/', 'Open findings'],
    ['/', 'class="line endpoints"'],
    ['/search?q=ledger', '/services/payments/ledger'],
    ['/findings?q=ledger', '10.244.99.99'],
    ['/services/shop/search', 'it selects 6 pods'],
    ['/nodes/node-c', 'Open findings'],
    ['/services?sort=slices', 'aria-sort="descending"'],
    ['/docs/runbook.md', 'EndpointsNodeRulesBroken'],
  ] as const) {
    await page.goto(`${url}${path}`);
    if (!(await page.content()).includes(text)) problems.push(`${path} does not show ${text}`);
  }
  check('everything can be read without scripts', problems);
  await page.context().close();
}

// The time bar.

/** The number in the link to all findings. */
const countOf = async (page: Page): Promise<number> =>
  Number(await page.textContent('nav a[href^="/findings"] .count'));

/** What a page that shows a moment lacks to be recognized as history. */
async function historyProblems(page: Page, at: number): Promise<string[]> {
  const text = `${new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
  const [notice, clock, word] = [
    await page.textContent('.notice.history'),
    await page.textContent('#moment'),
    await page.textContent('#live-word'),
  ];
  const slider = await page.inputValue('#time-bar input[type=range]');
  const problems = [
    ...expected(`the notice is ${String(notice)}`, notice?.includes(`state at ${text}`) === true),
    ...expected(`the clock is ${String(clock)}`, clock === text),
    ...expected(`it says ${String(word)}`, word === 'as of'),
    ...expected(`the slider is at ${slider}`, Number(slider) === at),
  ];
  return problems.map((problem) => `${page.url()}: ${problem}`);
}

/** Whether `Live again` has led to the address of the present, whose query is empty. */
const presentProblems = (page: Page, address: string): string[] =>
  expected(`Live again leads to ${page.url()}`, page.url().replace(/\?$/, '') === address);

/** Moves the slider of the overview, follows links as of then, and returns to the present. */
async function moveSlider(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const page = await openPage(browser, complaints);
  await page.goto(`${url}/`);
  const [present, problems] = [await countOf(page), [] as string[]];
  await page.fill('#time-bar input[type=range]', String(moment));
  await page.waitForURL((address) => address.searchParams.get('at') === String(moment));
  // Events of the present would come within a second.
  await page.waitForTimeout(1500);
  const response = await page.request.get(`${url}/api/v1/findings?at=${String(moment)}`);
  const { standing } = (await response.json()) as { standing: unknown[] };
  const past = await countOf(page);
  problems.push(
    ...expected(
      `${String(past)} findings, not ${String(standing.length)}`,
      past === standing.length,
    ),
    ...expected(`${String(past)} findings as in the present`, past !== present),
    ...(await historyProblems(page, moment)),
  );
  for (const [section, link] of [
    ['/services', 'a[href^="/services/shop/checkout?"]'],
    ['/nodes', 'a[href^="/nodes/node-c?"]'],
  ] as const) {
    await page.click(`nav a[href^="${section}"]`);
    await page.click(`main ${link}`);
    await page.waitForURL(({ pathname }) => pathname.startsWith(`${section}/`));
    problems.push(...(await historyProblems(page, moment)));
  }
  await page.click('.notice.history a');
  await page.waitForSelector('#live[data-state=still]');
  problems.push(
    ...presentProblems(page, `${url}/nodes/node-c`),
    ...expected('history after that', (await page.locator('.notice.history').count()) === 0),
  );
  check(
    'the slider shows overview, Service and node of a moment, and one click the present',
    problems,
  );
  await page.context().close();
}

/** Follows the link of each open finding to the moment before it. */
async function seeBefore(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const page = await openPage(browser, complaints);
  const problems: string[] = [];
  await page.goto(`${url}/findings`);
  const findings = page.locator('.finding:not(.resolved)');
  const count = Math.min(3, await findings.count());
  for (let index = 0; index < count; index++) {
    await page.goto(`${url}/findings`);
    const key = (await findings.nth(index).getAttribute('data-key')) ?? '';
    await findings.nth(index).locator('.before a').click();
    await page.waitForURL(({ searchParams }) => searchParams.has('at'));
    const at = Date.parse(new URL(page.url()).searchParams.get('at') ?? '') / 1000;
    const before = Number(key.split(' ').at(-2)) - at;
    const isOpen = (await page.locator(`.finding[data-key=${JSON.stringify(key)}]`).count()) > 0;
    problems.push(
      ...(await historyProblems(page, at)),
      ...expected(`${page.url()} has ${key}`, !isOpen),
      ...expected(`${page.url()} is ${String(before)} s before`, before > 0 && before <= 2),
    );
  }
  problems.push(...expected('no finding has the link', count > 0));
  check('a finding leads to what was before it', problems);
  await page.context().close();
}

async function travelWithoutScript(browser: Browser, url: string): Promise<void> {
  const viewport = { width: 360, height: 844 };
  const page = await openPage(browser, [], { javaScriptEnabled: false, viewport });
  const path = '/services/payments/ledger';
  await page.goto(`${url}${path}`);
  await page.fill('#time-bar input[type=range]', String(moment));
  await page.click('#time-bar button');
  const problems = await historyProblems(page, moment);
  await page.click(`#time-bar a:has-text("−1 min")`);
  problems.push(...(await historyProblems(page, moment - 60)));
  await page.click('#time-bar a.now');
  problems.push(...presentProblems(page, `${url}${path}`));
  check('the time bar works without scripts on a narrow screen', problems);
  await page.context().close();
}

const widths = [360, 820, 1280];

/** What a page at this width cuts off or breaks, with its address. */
async function cutParts(page: Page, width: number): Promise<string[]> {
  const over = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
  const cut = await page.evaluate<string[]>(
    `[...document.querySelectorAll('header a, header button, #live')].filter((part) => {
      const { left, right } = part.getBoundingClientRect();
      const { right: edge } = part.closest('nav, .wide').getBoundingClientRect();
      return left < 0 || right > edge + 1;
    }).map((part) => part.textContent.trim())`,
  );
  const height = await page.evaluate<number>("document.querySelector('header').offsetHeight");
  const problems = [
    ...expected(`is ${String(over)} px too wide`, over <= 0),
    ...expected(`cuts ${cut.join(', ')}`, cut.length === 0),
    ...expected(`has a header of ${String(height)} px`, width < 1280 || height < 70),
  ];
  return problems.map((text) => `${page.url()} at ${String(width)} ${text}`);
}

async function lookAround(browser: Browser, url: string, complaints: string[]): Promise<void> {
  const [bad, wide]: [string[], string[]] = [[], []];
  const look = async (colorScheme: 'light' | 'dark'): Promise<void> => {
    const own: string[] = [];
    const page = await openPage(browser, own, { colorScheme });
    for (const path of paths) {
      const before = own.length;
      await page.goto(`${url}${path}`);
      await page.waitForSelector('#live:not([data-state=""])');
      // These pages do not exist.
      if (/nobody|none$/.test(path)) own.length = before;
      for (const width of widths) {
        await page.setViewportSize({ width, height: width < 600 ? 844 : 900 });
        wide.push(...(await cutParts(page, width)));
        bad.push(...(await violations(page)));
        await takePicture(page, pictured[path] ?? null);
      }
    }
    complaints.push(...own);
    await page.context().close();
  };
  await Promise.all([look('light'), look('dark')]);
  check('axe-core finds nothing, at three widths in both themes', bad);
  check('every page fits on the screen, and its header on one line of a wide one', wide);
}

const pictured: Readonly<Record<string, string>> = {
  '/': 'overview',
  '/services/shop/checkout': 'service',
  '/nodes/node-c?port=shop/checkout:http': 'node',
};

/** Those that the documents show; the others are whole pages to look at, in a folder for that. */
const kept = ['overview-1280-light', 'overview-1280-dark', 'overview-360-dark'];
kept.push('service-1280-light', 'node-820-dark');

/** Writes the picture of a page with a name, if pictures are wanted. */
async function takePicture(page: Page, pageName: string | null): Promise<void> {
  if (pageName === null || !process.argv.includes('--pictures')) return;
  const { width = 0 } = page.viewportSize() ?? {};
  const isDark = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches");
  const name = `${pageName}-${String(width)}-${isDark === true ? 'dark' : 'light'}`;
  const folder = join(tmpdir(), 'endpoint-auditor-pages');
  mkdirSync(folder, { recursive: true });
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
  if (kept.includes(name)) await savePicture(page, name);
}

/** Writes what the screen shows to docs/images. WebP takes a third of the bytes of PNG. */
async function savePicture(page: Page, name: string): Promise<void> {
  const session = await page.context().newCDPSession(page);
  const options = { format: 'webp', quality: 80 } as const;
  const { data } = await session.send('Page.captureScreenshot', options);
  const bytes = Buffer.from(data, 'base64');
  writeFileSync(join(images, `${name}.webp`), bytes);
  process.stdout.write(`     docs/images/${name}.webp: ${String(bytes.length >> 10)} KB\n`);
}

async function loseServer(browser: Browser): Promise<void> {
  const server = await serve('--demo', '--speed', 'max');
  const page = await openPage(browser, []);
  await page.goto(`${server.url}/`);
  await page.waitForSelector('#live[data-state=replay], #live[data-state=still]');
  server.stop();
  await page.waitForSelector('#lost:has-text("Cannot reach endpoint-auditor")');
  check('the page reports a lost connection', await violations(page));
  await page.context().close();
}

const recording = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

interface RecordedLine {
  readonly type?: string;
  readonly resource: Resource;
  readonly object: Raw;
}

// An API server on loopback with the objects with which the recording of the shop begins, and a
// kubeconfig for it.

/** `start` resolves to a running server; nothing listens before. */
async function createShopServer() {
  const world = createServer(realClock);
  for (const text of gunzipSync(readFileSync(recording)).toString().trim().split('\n')) {
    const line = JSON.parse(text) as RecordedLine;
    if (line.type !== 'SYNC') continue;
    const { metadata } = world.objects.put(line.resource, line.object);
    // References to the object have the uid of the recording.
    Object.assign(metadata, { uid: line.object.metadata.uid });
  }
  const port = await freePort();
  const cluster = {
    server: `https://127.0.0.1:${String(port)}`,
    'certificate-authority': keyPath('server', 'crt'),
  };
  const kubeconfig = join(mkdtempSync(join(tmpdir(), 'shop-server-')), 'config');
  const content = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  writeFileSync(kubeconfig, JSON.stringify(content));
  return { kubeconfig, start: (): Promise<Listener> => listen(world.ask, { port }) };
}

const lostStates = [
  ['unconnected', 'Nothing has been read yet.'],
  ['lost', 'The page shows the state at that time.'],
] as const;

/** An API server that does not answer at first, then does, and then no longer. */
async function loseApiServer(browser: Browser): Promise<void> {
  const shop = await createShopServer();
  const flags = ['--kubeconfig', shop.kubeconfig, '--settle', '1s', '--cluster-name', 'demo'];
  const server = await serve(...flags);
  const problems: string[] = [];
  for (const [name, words] of lostStates) {
    if (name === 'lost') {
      const page = await openPage(browser, []);
      const listener = await shop.start();
      await page.goto(`${server.url}/`);
      await page.waitForSelector('#live[data-state=live]');
      await page.waitForSelector('.finding');
      await listener.close();
      await page.waitForSelector(`.notice:has-text("${words}")`);
      await page.context().close();
    }
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const width of [360, 1280]) {
        const viewport = { width, height: width < 600 ? 844 : 900 };
        const page = await openPage(browser, [], { colorScheme, viewport });
        await page.goto(`${server.url}/`);
        await page.waitForSelector(`.notice:has-text("${words}")`);
        // The events of the server may change the state that the page came with.
        await page.waitForTimeout(1500);
        const state = await page.getAttribute('#live', 'data-state');
        const text = String(await page.evaluate('document.body.innerText'));
        problems.push(
          ...expected(`${name}: the state is ${String(state)}`, state === 'lost'),
          ...expected(text, !/1970|Not ready yet|\blive\b/.test(text)),
          ...(await violations(page)),
          ...(await cutParts(page, Math.min(width, 1279))),
        );
        await takePicture(page, name);
        await page.context().close();
      }
    }
  }
  server.stop();
  check('the page reports an API server that does not answer', problems);
}

async function readHostile(browser: Browser): Promise<void> {
  const complaints: string[] = [];
  const { file, name } = recordHostile();
  const server = await serve('--input', file, '--speed', 'max', '--settle', '1s');
  const page = await openPage(browser, complaints);
  const problems: string[] = [];
  for (const path of [
    '/',
    '/findings',
    '/services',
    `/services/shop/${encodeURIComponent(name)}`,
  ]) {
    await page.goto(`${server.url}${path}`);
    await page.waitForSelector('#live[data-state=replay], #live[data-state=still]');
    const shown = await page.evaluate('document.body.textContent');
    if (!String(shown).includes(name)) problems.push(`${path} does not show the name`);
    if ((await page.evaluate('globalThis.taken === true')) === true)
      problems.push(`${path} ran it`);
  }
  server.stop();
  check('names that are scripts stay text', [...problems, ...complaints]);
  await page.context().close();
}

/** Milliseconds from the navigation to the first text; NaN: there was none for long. */
async function firstPaint(page: Page): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const at = await page.evaluate<number | null>(
      "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null",
    );
    if (at !== null) return at;
    await page.waitForTimeout(50);
  }
  return Number.NaN;
}

/** Shows every page of the large fleet and prints the time, which decides nothing. */
async function showFleet(browser: Browser, complaints: string[]): Promise<void> {
  const server = await startServer(['test/page/fleet.ts'], /^(\d+)$/);
  const page = await openPage(browser, complaints);
  const large = await page
    .goto(`${server.url}/services`)
    .then(() => page.getAttribute('[data-row] a.name', 'href'));
  const blank: string[] = [];
  const rows = [['page', 'first paint, ms', 'CPU of the answer, ms', 'longest turn, ms']];
  rows.push([':---', '---:', '---:', '---:'], ['at most', '1000', '100', '50']);
  for (const path of ['/', '/findings', '/services', '/services?q=9', large ?? '/', '/nodes']) {
    // What is asked for the first time is compiled first.
    for (let run = 0; run < 5; run++) await (await fetch(`${server.url}${path}`)).text();
    await server.ask('');
    await page.goto(`${server.url}${path}`);
    const paint = await firstPaint(page);
    await page.waitForTimeout(3000);
    const [answer = '', turn = ''] = (await server.ask('')).split(' ');
    rows.push([path, paint.toFixed(0), answer, turn]);
    if (Number.isNaN(paint)) blank.push(path);
  }
  server.stop();
  for (const row of rows) process.stdout.write(`     | ${row.join(' | ')} |\n`);
  check('10,000 Services: every page comes', blank);
  await page.context().close();
}

const browser = await startBrowser();
const complaints: string[] = [];
const server = await serve('--demo', '--speed', 'max', '--cluster-name', 'demo');
try {
  await Promise.all([
    watchLive(browser, complaints),
    readHostile(browser),
    loseServer(browser),
    loseApiServer(browser),
  ]);
  // The recording is over.
  const page = await openPage(browser, complaints);
  await page.goto(`${server.url}/`);
  await page.waitForSelector('#live[data-state=still]');
  await page.context().close();
  await useKeyboard(browser, server.url, complaints);
  await copyFinding(browser, server.url, complaints);
  await searchAll(browser, server.url, complaints);
  await readWithoutScript(browser, server.url);
  await moveSlider(browser, server.url, complaints);
  await seeBefore(browser, server.url, complaints);
  await travelWithoutScript(browser, server.url);
  await lookAround(browser, server.url, complaints);
  await showFleet(browser, complaints);
  check('no complaint on any console', complaints);
} finally {
  server.stop();
  await browser.close();
}
process.exitCode = failed === 0 ? 0 : 1;
