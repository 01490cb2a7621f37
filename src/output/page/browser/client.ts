// The script of the pages. Every function here runs in the browser: their texts, which hold nothing
// but JavaScript once the types are gone, are joined to one script and served (assets.ts). So they
// may use each other and what a browser has, and nothing else of this file. What a browser has is
// known here alone: the folder is a TypeScript project of its own, and scripts.ts hides it from the
// rest of the program.
//
// The server makes pages, the script keeps them fresh: when an event says that something has
// changed, the page is asked for again and what is new in it is put in place, so that focus, scroll
// position, open parts and what is being typed stay. There is one way to make a page, and it works
// without the script too.

/** What the server says once a second. */
interface Beat {
  readonly revision: string;
  readonly moment: string;
  readonly moving: boolean;
}

interface Fresh {
  /** Of what is shown. */
  revision: string;
  isAsking: boolean;
  /** Something came while a page was asked for. */
  isBehind: boolean;
  heardAt: number;
  charts: Map<Element, { plot: Plot; drawn: string }>;
}

interface Plot {
  setData(data: readonly (readonly (number | null)[])[]): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}

/** A chart as the page describes it. */
interface Drawing {
  readonly at: readonly number[];
  readonly lines: readonly { name: string; values: readonly (number | null)[] }[];
}

type Draw = (width: number, drawing: Drawing, colours: string[], target: Element) => Plot;

function say(state: string, word: string): void {
  const live = document.getElementById('live');
  const text = document.getElementById('live-word');
  if (live !== null) live.dataset.state = state;
  if (text !== null && text.textContent !== word) text.textContent = word;
}

function lost(text: string): void {
  const notice = document.getElementById('lost');
  if (notice !== null && notice.textContent !== text) notice.textContent = text;
  document.body.classList.toggle('is-lost', text !== '');
}

function shownMoment(): string {
  return document.getElementById('moment')?.textContent ?? '';
}

function connect(fresh: Fresh): void {
  const source = new EventSource('/api/v1/events');
  source.addEventListener('beat', (event) => {
    const beat = JSON.parse(String(event.data)) as Beat;
    fresh.heardAt = Date.now();
    lost('');
    if (beat.moving) say('live', 'live');
    else say('still', 'the input stands still at');
    const moment = document.getElementById('moment');
    if (moment !== null) moment.textContent = beat.moment;
    if (beat.revision !== fresh.revision) void refresh(fresh, false);
  });
  source.addEventListener('error', () => {
    say('lost', 'not connected');
    lost(`The connection is lost. This is what stood at ${shownMoment()}; trying again …`);
  });
  setInterval(() => {
    if (Date.now() - fresh.heardAt < 8000 || source.readyState !== EventSource.OPEN) return;
    say('lost', 'no news');
    lost(`Nothing was heard for a while. This is what stood at ${shownMoment()}.`);
  }, 2000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void refresh(fresh, false);
  });
}

/** Puts the page as it is now in the place of the one before. */
async function refresh(fresh: Fresh, isAsked: boolean): Promise<void> {
  if (fresh.isAsking || (document.hidden && !isAsked)) {
    fresh.isBehind = true;
    return;
  }
  fresh.isAsking = true;
  fresh.isBehind = false;
  try {
    const response = await fetch(location.href);
    const text = await response.text();
    const next = new DOMParser().parseFromString(text, 'text/html');
    const [here, there] = [document.querySelector('main'), next.querySelector('main')];
    if (here === null || there === null) throw new Error('no page');
    document.title = next.title;
    for (const part of ['header nav', 'footer']) {
      const [old, now] = [document.querySelector(part), next.querySelector(part)];
      if (old !== null && now !== null) morph(old, now);
    }
    morph(here, there);
    fresh.revision = next.body.dataset.revision ?? '';
    drawAll(fresh);
  } catch {
    say('lost', 'not connected');
  }
  // The page may be asked for once a second, however much happens.
  setTimeout(
    () => {
      fresh.isAsking = false;
      if (fresh.isBehind) void refresh(fresh, isAsked);
    },
    isAsked ? 50 : 1000,
  );
}

/** Makes one element as another is, and leaves alone what is the same. */
function morph(old: Element, now: Element): void {
  if (old.isEqualNode(now)) return;
  for (const { name } of [...old.attributes]) {
    const isOwn = name === 'open' || (name === 'class' && old.classList.contains('is-new'));
    if (!now.hasAttribute(name) && !isOwn) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.hasAttribute('data-keep') || old === document.activeElement) return;
  morphChildren(old, now);
}

function keyOf(node: Node): string {
  if (!(node instanceof Element)) return `#${node.nodeType}`;
  return `${node.tagName} ${node.getAttribute('data-key') ?? node.id}`;
}

/** Children keep their place in the page by their keys; what has none goes by its order. */
function morphChildren(old: Element, now: Element): void {
  const known = new Map<string, ChildNode[]>();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    known.set(key, [...(known.get(key) ?? []), child]);
  }
  let place: ChildNode | null = old.firstChild;
  for (const child of [...now.childNodes]) {
    const same = known.get(keyOf(child))?.shift();
    if (same === undefined) {
      if (child instanceof Element && child.hasAttribute('data-key')) {
        child.classList.add('is-new');
      }
      old.insertBefore(child, place);
      continue;
    }
    if (same === place) place = place.nextSibling;
    else old.insertBefore(same, place);
    if (same instanceof Element && child instanceof Element) morph(same, child);
    else if (same.nodeValue !== child.nodeValue) same.nodeValue = child.nodeValue;
  }
  for (const rest of known.values()) for (const child of rest) child.remove();
}

/** Forms that filter do so while one types; the address says what is shown. */
function filters(fresh: Fresh): void {
  let timer = 0;
  const apply = (form: HTMLFormElement): void => {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === 'string' && value !== '') query.append(name, value);
    }
    const text = query.toString();
    history.replaceState(null, '', location.pathname + (text === '' ? '' : `?${text}`));
    void refresh(fresh, true);
  };
  const later = (event: Event): void => {
    const form = (event.target as Element | null)?.closest<HTMLFormElement>('form[data-filter]');
    if (form === null || form === undefined) return;
    event.preventDefault();
    clearTimeout(timer);
    timer = window.setTimeout(() => apply(form), event.type === 'input' ? 150 : 0);
  };
  for (const type of ['input', 'submit']) document.addEventListener(type, later);
}

/** `/` goes to the search of the page, arrows go through a list once it has the focus. */
function keys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    const search = document.querySelector<HTMLInputElement>('input[type=search]');
    const isTyping = /^(?:INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
    if (event.key === '/' && !isTyping && search !== null) {
      event.preventDefault();
      search.focus();
      search.select();
      return;
    }
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0 || target.tagName === 'SELECT') return;
    const links = [...document.querySelectorAll<HTMLElement>('[data-row] a.name')];
    const row = target.closest('[data-row]')?.querySelector<HTMLElement>('a.name') ?? null;
    if (row === null && target !== search) return;
    const next =
      row === null ? (step === 1 ? links[0] : undefined) : links[links.indexOf(row) + step];
    event.preventDefault();
    (next ?? (step === -1 ? search : row))?.focus();
  });
}

function plotWith(draw: Draw, figure: HTMLElement): Plot | null {
  const target = figure.querySelector<HTMLElement>('.plot');
  if (target === null) return null;
  const drawing = JSON.parse(figure.dataset.chart ?? '{}') as Drawing;
  const style = getComputedStyle(figure);
  const names = ['--line-1', '--line-2', '--line-3', '--grid', '--dim'];
  const colours = names.map((name) => style.getPropertyValue(name).trim());
  return draw(target.clientWidth, drawing, colours, target);
}

/** Draws the charts of the page that are not drawn, or not as they are now. */
function drawAll(fresh: Fresh): void {
  for (const [figure, { plot }] of fresh.charts) {
    if (figure.isConnected) continue;
    plot.destroy();
    fresh.charts.delete(figure);
  }
  for (const figure of document.querySelectorAll<HTMLElement>('[data-chart]')) {
    const drawn = figure.dataset.chart ?? '';
    const known = fresh.charts.get(figure);
    if (known?.drawn === drawn) continue;
    if (known !== undefined) {
      const { at, lines } = JSON.parse(drawn) as Drawing;
      known.plot.setData([at, ...lines.map(({ values }) => values)]);
      known.drawn = drawn;
      continue;
    }
    const plot = plotWith(drawLines, figure);
    if (plot !== null) fresh.charts.set(figure, { plot, drawn });
  }
}

/** Seconds as people say them, for an axis of powers of ten. */
function secondsText(value: number | null): string {
  if (value === null) return '–';
  if (value < 0.9995) return `${Number((value * 1000).toPrecision(2))} ms`;
  return value < 100
    ? `${Number(value.toPrecision(2))} s`
    : `${Number((value / 60).toFixed(1))} min`;
}

function drawLines(width: number, drawing: Drawing, colours: string[], target: Element): Plot {
  interface Library {
    new (options: object, data: unknown, target: Element): Plot;
    tzDate(date: Date, zone: string): Date;
  }
  const Library = (window as unknown as { uPlot: Library }).uPlot;
  const [one = '', two = '', three = '', grid = '', dim = ''] = colours;
  const strokes = [one, two, three];
  const dashes = [[], [6, 4], [2, 3]];
  const axis = { stroke: dim, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  const size = { width, height: 220 };
  return new Library(
    {
      ...size,
      tzDate: (at: number) => Library.tzDate(new Date(at * 1000), 'Etc/UTC'),
      cursor: { points: { size: 8 }, drag: { x: false, y: false } },
      scales: {
        y: {
          distr: 3,
          range: (_: unknown, low: number, high: number) => [
            Math.min(0.01, low),
            Math.max(1, high * 2),
          ],
        },
      },
      axes: [
        { ...axis, values: '{HH}:{mm}:{ss}', space: 70 },
        {
          ...axis,
          size: 64,
          values: (_: unknown, ticks: (number | null)[]) =>
            ticks.map((tick) => (tick === null ? '' : secondsText(tick))),
        },
      ],
      series: [
        { label: 'UTC', value: '{HH}:{mm}:{ss}' },
        ...drawing.lines.map(({ name }, index) => ({
          label: name,
          stroke: strokes[index],
          dash: dashes[index],
          width: 2,
          points: { show: true, size: 5 },
          spanGaps: false,
          value: (_: unknown, value: number | null) => secondsText(value),
        })),
      ],
    },
    [drawing.at, ...drawing.lines.map(({ values }) => values)],
    target,
  );
}

/** Charts follow the width of the page, and its colours. */
function followShape(fresh: Fresh): void {
  let timer = 0;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      for (const [figure, { plot }] of fresh.charts) {
        const target = figure.querySelector('.plot');
        if (target !== null) plot.setSize({ width: target.clientWidth, height: 220 });
      }
    }, 100);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const [figure, { plot }] of fresh.charts) {
      plot.destroy();
      fresh.charts.delete(figure);
    }
    drawAll(fresh);
  });
}

function start(): void {
  const fresh: Fresh = {
    revision: document.body.dataset.revision ?? '',
    isAsking: false,
    isBehind: false,
    heardAt: Date.now(),
    charts: new Map(),
  };
  keys();
  filters(fresh);
  drawAll(fresh);
  followShape(fresh);
  connect(fresh);
}

const parts = [
  say,
  lost,
  shownMoment,
  connect,
  refresh,
  morph,
  keyOf,
  morphChildren,
  filters,
  keys,
  plotWith,
  drawAll,
  secondsText,
  drawLines,
  followShape,
  start,
];

/** The script as the browser gets it. */
export const clientScript = `'use strict';\n${parts.map(String).join('\n')}\n${start.name}();\n`;
