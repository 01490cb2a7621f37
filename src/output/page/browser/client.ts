// The script of the pages, in a TypeScript project with the types of a browser. The server joins
// the texts of these functions to one script (asset-texts.ts). So all are exported, and may use
// each other and the browser's API, but nothing else of this file.
//
// After an event the script loads the page again and replaces the changed parts. Focus, scroll
// position, open parts and typed text stay. So there is only one way to render a page.

type PageState = ReturnType<typeof createState>;

export function createState() {
  return {
    /** The revision of the shown page. */
    revision: document.body.dataset.revision ?? '',
    isAsking: false,
    /** Whether the page changed during a request. */
    isBehind: false,
    updatedAt: Date.now(),
  };
}

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

/** Whether the page does not depend on the state of the cluster. */
export function isStatic(): boolean {
  return document.body.dataset.static !== undefined;
}

export function connect(state: PageState): void {
  const source = new EventSource('/api/v1/events');
  source.addEventListener('beat', (event) => {
    // The server sends it once a second.
    type Beat = Record<'revision' | 'moment', string> & {
      moving: boolean | null;
      isLost: boolean;
      isLive: boolean;
    };
    const beat = JSON.parse(String(event.data)) as Beat;
    state.updatedAt = Date.now();
    showLoss('');
    if (beat.isLost) showConnection('lost', 'no answer since');
    else if (beat.moving === true && beat.isLive) showConnection('live', 'live');
    else if (beat.moving === true) showConnection('replay', 'replay at');
    else showConnection('still', beat.moving === false ? 'input ended at' : 'as of');
    const moment = document.getElementById('moment');
    if (moment !== null) moment.textContent = beat.moment;
    if (beat.revision !== state.revision && !isStatic()) void refresh(state, false);
  });
  source.addEventListener('error', () => {
    showConnection('lost', 'not connected');
    showLoss(`Cannot reach endpoint-auditor. Last update: ${shownMoment()}. Trying again …`);
  });
  setInterval(() => {
    if (Date.now() - state.updatedAt < 8000 || source.readyState !== EventSource.OPEN) return;
    showConnection('lost', 'no news');
    showLoss(`No update has arrived for 8 seconds. Last update: ${shownMoment()}.`);
  }, 2000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !isStatic()) void refresh(state, false);
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
    const focused = document.activeElement;
    for (const part of ['header nav', 'footer', 'main']) {
      const [shown, loaded] = [document.querySelector(part), next.querySelector(part)];
      if (shown === null || loaded === null) throw new Error('no page');
      morph(shown, loaded);
    }
    // An element that moves within the page loses the focus.
    if (focused instanceof HTMLElement && focused.isConnected)
      focused.focus({ preventScroll: true });
    document.title = next.title;
    state.revision = next.body.dataset.revision ?? '';
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

/** `/` moves to the filter or the search, arrows move through a list that has the focus. */
export function handleKeys(): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    const search =
      document.querySelector<HTMLInputElement>('main input[type=search]') ??
      document.querySelector<HTMLInputElement>('input[type=search]');
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

/** The texts of a finding for a ticket or a chat, one per line, with its address. */
export function findingText(finding: Element): string {
  const textOf = (part: Element): string => {
    const copy = part.cloneNode(true) as Element;
    for (const button of copy.querySelectorAll('button')) button.remove();
    for (const row of copy.querySelectorAll('li, dt, dd')) row.append(' ');
    return copy.textContent.replace(/\s+/g, ' ').trim();
  };
  const lines = [...finding.querySelectorAll('[data-line]')].map(textOf);
  const link = finding.querySelector<HTMLAnchorElement>('a.name')?.href ?? '';
  return [...lines.filter((line) => line !== ''), link].join('\n');
}

/** Buttons copy the command beside them, or a finding as text. */
export function handleCopies(): void {
  document.documentElement.classList.add('can-copy');
  document.addEventListener('click', (event) => {
    const button = (event.target as Element | null)?.closest<HTMLElement>('button.copy');
    const source = button?.closest('.command, .finding');
    if (button === null || button === undefined || !source) return;
    const command = source.querySelector('code');
    const isCommand = source.classList.contains('command');
    const text = isCommand ? command?.textContent : findingText(source);
    const show = (word: string): void => {
      button.textContent = word;
      setTimeout(() => (button.textContent = 'Copy'), 2000);
    };
    // Without HTTPS a browser has no clipboard.
    if (window.isSecureContext) {
      void navigator.clipboard.writeText(text ?? '').then(
        () => show('Copied'),
        () => show('Not copied'),
      );
    } else {
      getSelection()?.selectAllChildren(isCommand && command ? command : source);
      show('Selected');
    }
  });
}

/** Shows the moment of the slider of time while it moves, and opens the page of that moment. */
export function handleTimes(): void {
  const sliderOf = (event: Event): HTMLInputElement | null =>
    (event.target as Element | null)?.closest<HTMLInputElement>('.times input[type=range]') ?? null;
  document.addEventListener('input', (event) => {
    const slider = sliderOf(event);
    const shown = slider?.form?.querySelector('output');
    if (slider === null || !shown) return;
    const moment = new Date(slider.valueAsNumber * 1000).toISOString();
    const text = `${moment.slice(0, 10)} ${moment.slice(11, 19)} UTC`;
    shown.textContent = text;
    slider.setAttribute('aria-valuetext', text);
  });
  document.addEventListener('change', (event) => sliderOf(event)?.form?.requestSubmit());
}

export function start(): void {
  const state = createState();
  handleCopies();
  handleKeys();
  handleFilters(state);
  handleTimes();
  // The history does not change.
  if (!document.body.classList.contains('is-history')) connect(state);
}
