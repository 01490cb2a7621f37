// The script of the pages, in a TypeScript project with the types of a browser. The server joins
// the texts of these functions to one script (asset-texts.ts). So all are exported, and may use
// each other and the browser's API, but nothing else of this file.
//
// After an event the script loads the page again and replaces the changed parts. Focus, scroll
// position, open parts and typed text stay. So there is only one way to render a page.

import type UPlot from 'uplot';

type PageState = ReturnType<typeof createState>;

export function createState() {
  return {
    /** The revision of the shown page. */
    revision: document.body.dataset.revision ?? '',
    isAsking: false,
    /** Whether the page changed during a request. */
    isBehind: false,
    updatedAt: Date.now(),
    /** The charts with the data that they show. */
    charts: new Map<HTMLElement, { plot: uPlot; drawn: string }>(),
  };
}

/** The script of charts defines it. */
declare const uPlot: typeof UPlot;

export function showConnection(state: string, word: string): void {
  const live = document.getElementById('live');
  const text = document.getElementById('live-word');
  if (live !== null) live.dataset.state = state;
  if (text !== null && text.textContent !== word) text.textContent = word;
}

export function showLoss(text: string): void {
  const notice = document.getElementById('lost');
  if (notice !== null && notice.textContent !== text) notice.textContent = text;
  document.body.classList.toggle('is-lost', text !== '');
}

export function shownMoment(): string {
  return document.getElementById('moment')?.textContent ?? '';
}

export function connect(state: PageState): void {
  const source = new EventSource('/api/v1/events');
  source.addEventListener('beat', (event) => {
    // The server sends it once a second.
    type Beat = Record<'revision' | 'moment', string> & { moving: boolean };
    const beat = JSON.parse(String(event.data)) as Beat;
    state.updatedAt = Date.now();
    showLoss('');
    if (beat.moving) showConnection('live', 'live');
    else showConnection('still', 'the input stands still at');
    const moment = document.getElementById('moment');
    if (moment !== null) moment.textContent = beat.moment;
    if (beat.revision !== state.revision) void refresh(state, false);
  });
  source.addEventListener('error', () => {
    showConnection('lost', 'not connected');
    showLoss(`The connection is lost. This is what stood at ${shownMoment()}; trying again …`);
  });
  setInterval(() => {
    if (Date.now() - state.updatedAt < 8000 || source.readyState !== EventSource.OPEN) return;
    showConnection('lost', 'no news');
    showLoss(`Nothing was heard for a while. This is what stood at ${shownMoment()}.`);
  }, 2000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void refresh(state, false);
  });
}

export async function refresh(state: PageState, isAsked: boolean): Promise<void> {
  if (state.isAsking || (document.hidden && !isAsked)) {
    state.isBehind = true;
    return;
  }
  state.isAsking = true;
  state.isBehind = false;
  try {
    const response = await fetch(location.href);
    const text = await response.text();
    const next = new DOMParser().parseFromString(text, 'text/html');
    for (const part of ['header nav', 'footer', 'main']) {
      const [shown, loaded] = [document.querySelector(part), next.querySelector(part)];
      if (shown === null || loaded === null) throw new Error('no page');
      morph(shown, loaded);
    }
    document.title = next.title;
    state.revision = next.body.dataset.revision ?? '';
    drawAll(state);
  } catch {
    showConnection('lost', 'not connected');
  }
  // At most one request per second, for any number of changes.
  setTimeout(
    () => {
      state.isAsking = false;
      if (state.isBehind) void refresh(state, isAsked);
    },
    isAsked ? 50 : 1000,
  );
}

/** Makes one element equal to another, and does not touch equal parts. */
export function morph(old: Element, now: Element): void {
  if (old.isEqualNode(now)) return;
  for (const { name } of [...old.attributes]) {
    const isLocal = name === 'open' || (name === 'class' && old.classList.contains('is-new'));
    if (!now.hasAttribute(name) && !isLocal) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.hasAttribute('data-keep') || old === document.activeElement) return;
  morphChildren(old, now);
}

export function nodeKey(node: Node): string {
  if (!(node instanceof Element)) return `#${node.nodeType}`;
  return `${node.tagName} ${node.getAttribute('data-key') ?? node.id}`;
}

/** Matches children by their keys; those without a key match by their order. */
export function morphChildren(old: Element, now: Element): void {
  const known = new Map<string, ChildNode[]>();
  for (const child of old.childNodes) {
    const key = nodeKey(child);
    known.set(key, [...(known.get(key) ?? []), child]);
  }
  let place: ChildNode | null = old.firstChild;
  for (const child of [...now.childNodes]) {
    const same = known.get(nodeKey(child))?.shift();
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

/** Applies filters while the user types; the address has the values. */
export function handleFilters(state: PageState): void {
  let timer = 0;
  const apply = (form: HTMLFormElement): void => {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === 'string' && value !== '') query.append(name, value);
    }
    const text = query.toString();
    history.replaceState(null, '', location.pathname + (text === '' ? '' : `?${text}`));
    void refresh(state, true);
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

/** `/` moves to the search of the page, arrows move through a list that has the focus. */
export function handleKeys(): void {
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
    // The search is before the first row.
    const next = links[(row === null ? -1 : links.indexOf(row)) + step];
    event.preventDefault();
    (next ?? (step === -1 ? search : row))?.focus();
  });
}

/** Removes the charts that are no longer on the page, or all of them. */
export function removeCharts(charts: PageState['charts'], all: boolean): void {
  for (const [figure, { plot }] of charts) {
    if (figure.isConnected && !all) continue;
    plot.destroy();
    charts.delete(figure);
  }
}

export function drawAll({ charts }: PageState): void {
  removeCharts(charts, false);
  for (const figure of document.querySelectorAll<HTMLElement>('[data-chart]')) {
    const drawn = figure.dataset.chart ?? '{}';
    const known = charts.get(figure);
    const target = figure.querySelector<HTMLElement>('.plot');
    if (known?.drawn === drawn || target === null) continue;
    interface Drawing {
      at: number[];
      lines: { name: string; values: (number | null)[] }[];
    }
    const { at, lines } = JSON.parse(drawn) as Drawing;
    const data: uPlot.AlignedData = [at, ...lines.map(({ values }) => values)];
    known?.plot.setData(data);
    const names = lines.map(({ name }) => name);
    const plot = known?.plot ?? new uPlot(chartOptions(target, names), data, target);
    charts.set(figure, { plot, drawn });
  }
}

/** Formats seconds for an axis of powers of ten. */
export function secondsText(value: number | null): string {
  if (value === null) return '–';
  if (value < 0.9995) return `${Number((value * 1000).toPrecision(2))} ms`;
  return value < 100
    ? `${Number(value.toPrecision(2))} s`
    : `${Number((value / 60).toFixed(1))} min`;
}

export function chartOptions(target: Element, names: readonly string[]): uPlot.Options {
  const style = getComputedStyle(target);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const [stroke, lines] = [colour('--dim'), { stroke: colour('--grid'), width: 1 }];
  const axis = { stroke, grid: lines, ticks: lines };
  const dashes = [[], [6, 4], [2, 3]];
  return {
    width: target.clientWidth,
    height: 220,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
    cursor: { points: { size: 8 }, drag: { x: false, y: false } },
    scales: {
      // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- logarithmic
      y: { distr: 3, range: (_, low, high) => [Math.min(0.01, low), Math.max(1, high * 2)] },
    },
    axes: [
      { ...axis, values: '{HH}:{mm}:{ss}', space: 70 },
      {
        ...axis,
        size: 64,
        values: (_, ticks: (number | null)[]) =>
          ticks.map((tick) => (tick === null ? '' : secondsText(tick))),
      },
    ],
    series: [
      { label: 'UTC', value: '{HH}:{mm}:{ss}' },
      ...names.map((label, index) => ({
        label,
        stroke: colour(`--line-${index + 1}`),
        dash: dashes[index] ?? [],
        width: 2,
        points: { show: true, size: 5 },
        spanGaps: false,
        value: (_: uPlot, value: number | null) => secondsText(value),
      })),
    ],
  };
}

/** Adapts charts to the width and the colours of the page. */
export function followShape(state: PageState): void {
  let timer = 0;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      for (const [figure, { plot }] of state.charts) {
        const target = figure.querySelector('.plot');
        if (target !== null) plot.setSize({ width: target.clientWidth, height: 220 });
      }
    }, 100);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    removeCharts(state.charts, true);
    drawAll(state);
  });
}

export function start(): void {
  const state = createState();
  handleKeys();
  handleFilters(state);
  drawAll(state);
  followShape(state);
  connect(state);
}
