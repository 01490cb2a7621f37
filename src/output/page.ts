// The page: what stands, now, on one screen of whatever size. It is one HTML text without scripts,
// images or links to anywhere else, made anew for each request and bounded in size, so that it can
// be looked at on a telephone in a bad hour; the browser asks for it again by itself.
//
// Order of the page is order of worth: is all well, which findings stand, what is resolved, how
// fast controllers follow. Everything that the cluster may have named is escaped. What a code means
// stands below, from the catalogue, so that nobody has to look it up elsewhere.
//
// Left out: history and search, which /metrics and /api/v1/findings are for.

import { createHash } from 'node:crypto';

import type { Code, Finding } from '../audit/findings.ts';
import { catalogue } from '../audit/findings.ts';
import type { Verdict } from '../audit/verdict.ts';
import { judged, written } from '../audit/verdict.ts';
import { fillRatio, surplusOf } from '../measure/fill.ts';
import { lagOperations, lagOutputs } from '../measure/lag.ts';
import type { MetricsState } from './family.ts';
import { lagFigures } from './report.ts';
import { cut, escapeMarkup, lagText, timeText } from './text.ts';

/** What the page and the API show besides the metrics. */
export interface Status {
  readonly metrics: MetricsState;
  /** Resolved findings that are kept, oldest first; `forgotten` counts those that are not. */
  readonly resolved: readonly Finding[];
  readonly forgotten: number;
  /** Why too little is known, for people, a reason a line; null: all that was promised is. */
  readonly notReady: string | null;
  /** Where the input comes from, for people: a path, an address. */
  readonly source: string;
  /** The version of the control plane as the input names it. */
  readonly kubernetes: string | null;
}

// Bytes of HTML: of findings and explanations together, and the most that either list may take.
// Explanations have what the lists leave; everything else on the page is about 6 KB.
const budget = 12_500;
const standingRoom = 7_000;
const resolvedRoom = 2_500;
/** Nodes with rows of their own. */
const mostNodes = 8;
/** More findings than there is ever room for. */
const most = 60;

const style = `
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2125;--dim:#646b73;--line:#e1e3e6;
--critical:#b3261e;--warning:#8a5a00;--info:#1f5fa8;--ok:#22733d;--critical-bg:#fbe9e7;
--warning-bg:#fdf2d8;--info-bg:#e7f0fa;--ok-bg:#e5f4ea}
@media(prefers-color-scheme:dark){:root{--bg:#131619;--card:#1b1f23;--ink:#e4e7ea;--dim:#98a0a8;
--line:#2e343a;--critical:#ff8a80;--warning:#f5c35b;--info:#8ab8f0;--ok:#7fcf98;
--critical-bg:#3a1d1b;--warning-bg:#362a12;--info-bg:#192a3d;--ok-bg:#183022}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.25rem 1rem 3rem;max-width:66rem;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header{display:flex;flex-wrap:wrap;gap:.1rem 1rem;justify-content:space-between}
h1{font-size:1.05rem;margin:0}
h2{font-size:.95rem;margin:2rem 0 .6rem}
h2 small,.dim{color:var(--dim);font-weight:400}
.head{font-size:1.35rem;font-weight:600;line-height:1.3;padding:.8rem 1rem;margin:1rem 0;
border-radius:.6rem;background:var(--ok-bg);color:var(--ok)}
.head.critical{background:var(--critical-bg);color:var(--critical)}
.head.warning{background:var(--warning-bg);color:var(--warning)}
.head.info{background:var(--info-bg);color:var(--info)}
.head small{display:block;font-size:.9rem;font-weight:400;color:var(--ink)}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.4rem .75rem;text-align:right;white-space:nowrap}
td,tbody th{border-top:1px solid var(--line)}
th{font-weight:500;color:var(--dim)}
th:first-child,td:first-child{text-align:left}
tbody th{color:var(--ink)}
td.zero{color:var(--dim);opacity:.6}
td.conform{color:var(--ok)}td.pending{color:var(--info)}
td.different{color:var(--critical);font-weight:600}td.unknown{color:var(--warning);font-weight:600}
ul{list-style:none;margin:0;padding:0}
li{padding:.65rem .9rem;border-top:1px solid var(--line);border-left:4px solid var(--line)}
li:first-child{border-top:0}
li.critical{border-left-color:var(--critical)}li.warning{border-left-color:var(--warning)}
li.info{border-left-color:var(--info)}
li p{margin:.15rem 0 0}li .time{font-size:.85rem}
.tag{font-size:.78rem;font-weight:600;padding:.05rem .45rem;border-radius:.3rem;margin-right:.4rem}
.critical .tag{background:var(--critical-bg);color:var(--critical)}
.warning .tag{background:var(--warning-bg);color:var(--warning)}
.info .tag{background:var(--info-bg);color:var(--info)}
.gone .tag{background:var(--ok-bg);color:var(--ok)}
code,.mono{font:.86em ui-monospace,monospace}
a{color:var(--info)}
dl{margin:0;padding:.2rem .9rem .7rem}
dt{margin-top:.6rem;font-weight:600}dd{margin:0}
dt:target{background:var(--warning-bg)}
@media(max-width:36rem){body{font-size:14px}.age{display:none}
th,td{padding:.35rem .3rem;font-size:.74rem}th:first-child{padding-left:.7rem}}
`;

/** The source expression of a Content-Security-Policy that allows the page's own style. */
export const styleSource = `'sha256-${createHash('sha256').update(style).digest('base64')}'`;

const plural = (count: number, word: string): string => `${count} ${word}${count === 1 ? '' : 's'}`;

const at = (seconds: number): string => timeText(seconds).replace('T', ' ').replace('Z', ' UTC');

/** How long ago, roughly: `12 s`, `4 min`, `3 h`, `5 d`. */
function ageText(seconds: number): string {
  const age = Math.max(0, seconds);
  if (age < 120) return `${Math.round(age)} s`;
  if (age < 7200) return `${Math.round(age / 60)} min`;
  return age < 172_800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86_400)} d`;
}

// --- parts ---

function headText({ metrics, notReady }: Status): string {
  const { summary } = metrics;
  const worst = summary.findings[0]?.severity;
  if (notReady !== null) {
    return `<p class="head info">Not ready<small>${escapeMarkup(notReady)}</small></p>`;
  }
  if (worst === undefined) {
    const unknown = Object.values(summary.unknown).reduce((sum, count) => sum + count, 0);
    if (unknown > 0) {
      // Among them are Services of which not even that is known.
      const text = `${plural(unknown, 'output')} cannot be judged; no findings`;
      return `<p class="head warning">${text}</p>`;
    }
    const pending = judged.reduce((sum, output) => sum + summary.verdicts[output].pending, 0);
    const settling = pending === 0 ? '' : `, ${plural(pending, 'output')} pending`;
    const all =
      summary.services === 0 ? 'No Services' : `${plural(summary.services, 'Service')} conform`;
    return `<p class="head">${all}${settling}</p>`;
  }
  const counts = { critical: 0, warning: 0, info: 0 };
  for (const { severity } of summary.findings) counts[severity]++;
  const parts = Object.entries(counts).filter(([, count]) => count > 0);
  const text = parts.map(([severity, count]) => `${count} ${severity}`).join(', ');
  const of = `among ${plural(summary.services, 'Service')}`;
  const title = plural(summary.findings.length, 'finding');
  return `<p class="head ${worst}">${title}: ${text}<small>${of}</small></p>`;
}

const verdictWords: readonly Verdict[] = ['conform', 'pending', 'different', 'unknown'];

/** As many nodes as there is room for, those first that are not all conform. */
function nodeRows(nodes: Status['metrics']['summary']['nodes']): string[] {
  const bad = (one: (typeof nodes)[number]): number => one.different + one.unknown + one.pending;
  const shown = [...nodes].sort((a, b) => bad(b) - bad(a)).slice(0, mostNodes);
  return shown.map((one) => {
    const cells = verdictWords.map(
      (verdict) => `<td class="${one[verdict] === 0 ? 'zero' : verdict}">${one[verdict]}</td>`,
    );
    const name = escapeMarkup(cut(one.node, 40));
    return `<tr><th scope="row">node ${name}</th>${cells.join('')}<td class="age"></td></tr>`;
  });
}

function verdictTable({ metrics: { summary, now } }: Status): string {
  const rows = written.map((output) => {
    const cells = verdictWords.map((verdict) => {
      const count = summary.verdicts[output][verdict];
      return `<td class="${count === 0 ? 'zero' : verdict}">${count}</td>`;
    });
    const since = summary.pendingSince[output];
    const oldest = since === undefined ? '' : ageText(now - since);
    cells.push(`<td class="dim age">${oldest}</td>`);
    return `<tr><th scope="row">${output}</th>${cells.join('')}</tr>`;
  });
  rows.push(...nodeRows(summary.nodes));
  const heads = verdictWords.map((verdict) => `<th scope="col">${verdict}</th>`).join('');
  const unknown = Object.entries(summary.unknown).map(([reason, count]) => `${count} ${reason}`);
  const notes = [
    unknown.length === 0 ? '' : `Unknown: ${unknown.join(', ')}.`,
    summary.foreign === 0 ? '' : `Written by others, not judged: ${summary.foreign}.`,
  ];
  return (
    `<h2>Verdicts</h2><div class="card"><table><thead><tr><th scope="col">output</th>${heads}` +
    `<th class="age" scope="col">oldest pending</th></tr></thead>` +
    `<tbody>${rows.join('')}</tbody></table></div>` +
    `<p class="dim">${notes.filter((note) => note !== '').join(' ')}</p>`
  );
}

/** What is wrong with a finding: what stands, and what should. */
function detail({ expected, actual }: Finding): string {
  const line = (word: string, text: string | null): string =>
    text === null
      ? ''
      : `<p class="mono"><span class="dim">${word}</span> ${escapeMarkup(cut(text, 200))}</p>`;
  return line('actual', actual) + line('expected', expected);
}

/** One finding as a list item; `meant` are the codes that are explained on the page. */
function findingItem(finding: Finding, now: number, meant: ReadonlySet<Code>): string {
  const { code, severity, output, cause, since, resolvedAt } = finding;
  const gone = resolvedAt !== null;
  const name = escapeMarkup(cut(`${finding.namespace}/${finding.service}`, 130));
  const linked = meant.has(code) ? `<a href="#${code}">${code}</a>` : code;
  const end = resolvedAt ?? now;
  const age = ageText(end - since);
  const times = gone ? `resolved at ${at(end)} after ${age}` : `for ${age}, since ${at(since)}`;
  const because = cause === null ? '' : ` · cause: ${cause}`;
  return (
    `<li class="${gone ? 'gone' : severity}">` +
    `<span class="tag">${gone ? 'resolved ' : ''}${severity}</span>` +
    `<b>${name}</b> <span class="dim">${output}</span> <code>${linked}</code>` +
    `${gone ? '' : detail(finding)}<p class="dim time">${times}${because}</p></li>`
  );
}

/** Items while there is room, and how many there was none for. */
function fitting(items: Iterable<string>, room: number): { html: string; taken: number } {
  let html = '';
  let taken = 0;
  for (const item of items) {
    if (Buffer.byteLength(html) + Buffer.byteLength(item) > room) break;
    html += item;
    taken++;
  }
  return { html, taken };
}

const more = (count: number): string =>
  count === 0
    ? ''
    : `<p class="dim">and ${count} more in <a href="/api/v1/findings">/api/v1/findings</a></p>`;

/** The codes that there is room to explain, and how. */
function explanations(codes: ReadonlySet<Code>, room: number): { html: string; meant: Set<Code> } {
  const list = [...codes];
  const { html, taken } = fitting(
    list.map((code) => {
      const { title, meaning, remedy } = catalogue[code];
      const text = `${escapeMarkup(`${title}. ${meaning}`)} <i>${escapeMarkup(remedy)}</i>`;
      return `<dt id="${code}"><code>${code}</code></dt><dd>${text}</dd>`;
    }),
    room,
  );
  return {
    html: taken === 0 ? '' : `<h2>What the codes mean</h2><dl class="card">${html}</dl>`,
    meant: new Set(list.slice(0, taken)),
  };
}

function findingLists({ metrics: { summary, now }, resolved, forgotten }: Status): string {
  const standing = summary.findings.slice(0, most);
  const newest = resolved.slice(-most).reverse();
  // Links to explanations are counted first, and made where there turns out to be room for those.
  const codes = new Set(standing.map(({ code }) => code));
  const items = (findings: readonly Finding[], meant: ReadonlySet<Code>): string[] =>
    findings.map((finding) => findingItem(finding, now, meant));
  const open = fitting(items(standing, codes), standingRoom);
  const gone = fitting(items(newest, codes), resolvedRoom);
  const left = budget - Buffer.byteLength(open.html) - Buffer.byteLength(gone.html);
  const { html, meant } = explanations(codes, left);
  const list = (findings: readonly Finding[]): string =>
    `<ul class="card">${items(findings, meant).join('')}</ul>`;
  const all = summary.findings.length;
  const past = resolved.length + forgotten;
  return [
    `<h2>Standing findings <small>${all}</small></h2>`,
    all === 0 ? '<p class="dim">None.</p>' : list(standing.slice(0, open.taken)),
    more(all - open.taken),
    past === 0 ? '' : `<h2>Resolved findings <small>${past}</small></h2>`,
    past === 0 ? '' : list(newest.slice(0, gone.taken)),
    more(past - gone.taken),
    html,
  ].join('');
}

function lagTable({ metrics: { convergence } }: Status): string {
  const rows: string[] = [];
  for (const output of lagOutputs) {
    for (const operation of lagOperations) {
      const { count, p50, p99, max } = lagFigures(convergence[output][operation]);
      if (count === 0) continue;
      const cells = [count.toLocaleString('en'), lagText(p50), lagText(p99), lagText(max)];
      const tds = cells.map((cell) => `<td>${cell}</td>`).join('');
      rows.push(`<tr><th scope="row">${output} ${operation}</th>${tds}</tr>`);
    }
  }
  const title =
    '<h2>Convergence lag <small>from the change to the writing that follows it</small></h2>';
  if (rows.length === 0) return `${title}<p class="dim">Nothing measured yet.</p>`;
  const heads = ['output', 'changes', 'p50', 'p99', 'longest'];
  const head = heads.map((word) => `<th scope="col">${word}</th>`).join('');
  return (
    `${title}<div class="card"><table><thead><tr>${head}</tr></thead>` +
    `<tbody>${rows.join('')}</tbody></table></div>`
  );
}

function packingText({ metrics: { fill, duplicates } }: Status): string {
  const ratio = fillRatio(fill, fill.max);
  if (ratio === null) return '';
  const parts = [
    `${plural(fill.slices, 'slice')}, ${surplusOf(fill)} more than needed`,
    `${Math.round(ratio * 100)} % of their places taken`,
    `${duplicates.equal + duplicates.conflicting} duplicate endpoints`,
  ];
  return `<p class="dim">${parts.join(' · ')}</p>`;
}

/** The page as HTML, at most 20 KB. */
export function renderPage(status: Status): string {
  const { metrics, kubernetes, source } = status;
  const input = [
    kubernetes === null ? '' : `Kubernetes ${escapeMarkup(cut(kubernetes, 40))}`,
    `shadowed as 1.${metrics.releaseMinor}`,
    escapeMarkup(cut(source, 200)),
  ];
  return (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">' +
    '<meta name="viewport" content="width=device-width,initial-scale=1">' +
    '<meta http-equiv="refresh" content="15"><title>endpoint-auditor</title>' +
    `<style>${style}</style></head><body>` +
    `<header><h1>endpoint-auditor <span class="dim">${escapeMarkup(metrics.version)}</span></h1>` +
    `<span class="dim">input clock <time>${at(metrics.now)}</time></span></header>` +
    `<div class="dim">${input.filter((part) => part !== '').join(' · ')}</div>` +
    `<main>${headText(status)}${verdictTable(status)}${findingLists(status)}${lagTable(status)}` +
    `${packingText(status)}</main><footer class="dim"><p><a href="/metrics">/metrics</a> · ` +
    '<a href="/api/v1/findings">/api/v1/findings</a> · <a href="/readyz">/readyz</a></p></footer>' +
    '</body></html>\n'
  );
}
