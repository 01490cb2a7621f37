// Differences between the expected and the actual state: what is missing, what is extra, and of two
// texts the words that differ. Equal parts are dimmed.

import { fewOf } from '../../audit/explain/explanation.ts';
import type { DifferenceDetail } from '../../audit/finding/catalogue.ts';
import type { PacketTrace } from '../../audit/node/audit-node.ts';
import { truncate } from '../text/format.ts';
import { type Html, markup } from './parts.ts';

const longest = 160;

/** The equal words at the start and at the end of two texts, and the rest between them. */
export function splitEqual(first: string, second: string) {
  const [a, b] = [first.split(/(?<=\s)/), second.split(/(?<=\s)/)] as const;
  const most = Math.min(a.length, b.length);
  let start = 0;
  while (start < most && a[start] === b[start]) start++;
  let end = 0;
  while (end < most - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const parts = (words: readonly string[]) => ({
    before: words.slice(0, start).join(''),
    different: words.slice(start, words.length - end).join(''),
    after: words.slice(words.length - end).join(''),
  });
  return [parts(a), parts(b)] as const;
}

function renderSide(name: string, tone: string, side: ReturnType<typeof splitEqual>[number]): Html {
  const { before, different, after } = side;
  return markup`<div class="side ${tone}"><dt>${name}</dt>
<dd><span class="dim">${before}</span><b>${different}</b>
<span class="dim">${after}</span></dd></div>`;
}

/** Two texts, one above the other. */
function renderSides(expected: string, actual: string): Html {
  const [want, got] = splitEqual(truncate(expected, longest), truncate(actual, longest));
  return markup`<dl class="sides">${renderSide('expected', 'lack', want)}
${renderSide('found', 'extra', got)}</dl>`;
}

type Tone = keyof typeof marks;

// No plus and minus: in a text they are of the state that is expected, and of the present one.
const marks = { lack: ['○', 'missing'], extra: ['●', 'extra'], change: ['≠', 'differs'] } as const;

function renderItem(tone: Tone, content: Html): Html {
  const [sign, word] = marks[tone];
  return markup`<li class="${tone}"><span class="sign" aria-hidden="true">${sign}</span>
<span class="tag">${word}</span> <span>${content}</span></li>
`;
}

/** The details with equal sides, and the places at which they differ so. */
function groupDetails(details: readonly DifferenceDetail[]) {
  const groups = Map.groupBy(details, ({ object, address, pod, expected, actual }) =>
    [object, address, pod, expected, actual].join('\n'),
  );
  return [...groups.values()].flatMap((group) => {
    const fields = [...new Set(group.map(({ field }) => field))];
    return group.slice(0, 1).map((first) => ({ ...first, fields }));
  });
}

function renderDetail({ object, address, pod, expected, actual, fields }: GroupedDetail): Html {
  const tone = actual === null ? 'lack' : expected === null ? 'extra' : 'change';
  const places = fewOf(fields, 2);
  // The subject of the finding names the node.
  const place = object.startsWith('Node ') ? places : `${object} ${places}`;
  const isBoth = expected !== null && actual !== null;
  const text = truncate(expected ?? actual ?? '', longest);
  return renderItem(
    tone,
    markup`${address !== null && markup`<b class="mono">${address}</b> `}
${pod !== null && `of pod ${pod} `}${!isBoth && markup`<span class="mono">${text}</span> `}
<span class="dim">${truncate(place, longest)}</span>${isBoth && renderSides(expected, actual)}`,
  );
}

type GroupedDetail = ReturnType<typeof groupDetails>[number];

/** The first `most` differences of a finding. */
export function renderDetails(details: readonly DifferenceDetail[], most: number): Html | null {
  if (details.length === 0) return null;
  const groups = groupDetails(details);
  const more = groups.length - most;
  return markup`<ul class="diff">${groups.slice(0, most).map(renderDetail)}
${more > 0 && markup`<li class="dim">and ${more} more</li>`}</ul>`;
}

const shownEndpoints = 24;

const listEndpoints = (endpoints: readonly string[]): string => fewOf(endpoints, shownEndpoints);

/** The endpoints that packets should reach, with those that they do reach. */
export function renderPacketDiff({ wanted, allowed, got, expected, actual }: PacketTrace): Html {
  const missing = wanted.filter((endpoint) => !got.includes(endpoint));
  const extra = got.filter((endpoint) => !allowed.includes(endpoint));
  const equal = got.filter((endpoint) => allowed.includes(endpoint));
  if (missing.length + extra.length === 0 || got.length === 0) return renderSides(expected, actual);
  const item = (tone: Tone, endpoints: readonly string[]): Html | false =>
    endpoints.length > 0 &&
    renderItem(tone, markup`<b class="mono">${listEndpoints(endpoints)}</b>`);
  return markup`<ul class="diff">${item('lack', missing)}${item('extra', extra)}
${
  equal.length > 0 &&
  markup`<li class="dim"><span class="sign" aria-hidden="true">=</span>
<span class="tag">as expected</span> <span class="mono">${listEndpoints(equal)}</span></li>`
}</ul>`;
}
