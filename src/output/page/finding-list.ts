// Findings as a list: subject, title, differences, times and cause of each.

import {
  catalogue,
  type DifferenceDetail,
  type Finding,
  type Suppressed,
} from '../../audit/finding/catalogue.ts';
import { remedyOf } from '../../audit/finding/remedies.ts';
import { suppressedText } from '../../audit/finding/suppressions.ts';
import type { Key } from '../../model/objects.ts';
import { formatTime, truncate } from '../text/format.ts';
import { renderDetails } from './diff.ts';
import {
  findingPath,
  formatSubject,
  formatTimes,
  type Html,
  markup,
  renderFlushCard,
  renderList,
  renderMark,
} from './parts.ts';

/** Differences of one finding in a list. */
const shownDetails = 3;

/** Copies the texts of the finding that have `data-line`, for a ticket or a chat. */
const copyButton = markup`<button type="button" class="copy">Copy</button>`;

/** Commands to copy, and what to do on a managed control plane. */
export function renderCommands(commands: readonly string[], managed: string | null): Html {
  const items = commands.map(
    (command) => markup`<li class="command"><code>${command}</code>
<button type="button" class="copy">Copy</button></li>
`,
  );
  return markup`${items.length > 0 && markup`<ul>${items}</ul>`}
${managed !== null && markup`<p class="dim">${managed}</p>`}`;
}

/** A text with `code`. */
export const renderCode = (text: string): Html[] =>
  text
    .split('`')
    .map((part, index) => (index % 2 === 1 ? markup`<code>${part}</code>` : markup`${part}`));

/** What to do, with commands to copy. */
function renderRemedy(finding: Finding): Html {
  const { text, commands, managed } = remedyOf(finding);
  return markup`<details class="remedy"><summary>How to fix it</summary><p>${renderCode(text)}</p>
${renderCommands(commands, managed)}</details>`;
}

const renderSuppressed = (it: Suppressed): Html =>
  markup`<p class="dim" data-line>Suppressed ${truncate(suppressedText(it), 300)}
 (${truncate(it.source, 130)})</p>`;

/** The differences, those of a Service first. */
export const detailsOfFirst = (details: readonly DifferenceDetail[], service: Key | null) =>
  service === null
    ? details
    : details.toSorted(
        (a, b) => Number(isOfService(b.field, service)) - Number(isOfService(a.field, service)),
      );

const isOfService = (field: string, service: Key): boolean => field.startsWith(`${service}:`);

/** The page of its Service or node one second before it began. */
function beforePath(finding: Finding): string {
  const path = findingPath(finding);
  const moment = Math.floor(finding.since) - 1;
  return `${path}${path.includes('?') ? '&' : '?'}at=${formatTime(moment)}`;
}

/** One finding as a list item; its differences of one Service are first. */
export function renderFinding(finding: Finding, now: number, service: Key | null = null): Html {
  const { code, severity, output, cause, causeProven, since, resolvedAt, differences } = finding;
  const { suppressed } = finding;
  const subject = formatSubject(finding);
  const isOpen = resolvedAt === null;
  const shown = isOpen ? detailsOfFirst(differences, service) : [];
  const openTone = suppressed === null ? severity : 'quiet';
  const tone = isOpen ? openTone : 'resolved';
  const state = [isOpen ? [] : 'resolved', suppressed === null ? [] : 'suppressed', severity];
  const mark = renderMark(tone, state.flat().join(' '));
  const times = formatTimes(since, resolvedAt, now);
  const key = `${code} ${cause ?? ''} ${subject} ${since} ${String(!isOpen)}`;
  const known = causeProven ? 'cause' : 'likely cause';
  const because = markup` · ${known}: <a href="/findings?code=${code}#cause-${cause}">${cause}</a>`;
  return markup`
<li class="finding ${tone}" data-row data-key="${key}">
<p class="line" data-line>${mark}${' '}
<a class="name" href="${findingPath(finding)}">${truncate(subject, 130)}</a>
<span class="where">${output}</span>${isOpen && copyButton}</p>
<p class="say" data-line>${catalogue[code].title}</p>
${suppressed !== null && renderSuppressed(suppressed)}
${isOpen && markup`<div data-line>${renderDetails(shown, shownDetails)}</div>`}
<p class="dim" data-line>${times}${cause !== null && because}
 · <a href="/findings?code=${code}#${code}"><code>${code}</code></a>
<span class="before"> · <a href="${beforePath(finding)}">What was before</a></span></p>
${isOpen && renderRemedy(finding)}</li>`;
}

/** A list with all findings, on the page of a Service if it is named; nothing without any. */
export function renderFindingList(
  findings: readonly Finding[],
  now: number,
  service: Key | null = null,
): Html[] {
  return renderList(findings.map((finding) => renderFinding(finding, now, service)));
}

/** The last resolved findings of a Service or a node; `null` without any. */
export const renderResolved = (resolved: readonly Finding[], now: number): Html | null => {
  const latest = resolved.slice(-10).reverse();
  return renderFlushCard('resolved', 'Resolved findings', renderFindingList(latest, now));
};
