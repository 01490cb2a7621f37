// Renders an explanation on a page: the answer, the suggested change, and the tree of reasons, with
// the same signs as in a terminal (text/explain.ts).

import type { Explanation, Reason, ReasonMark } from '../../audit/explain/explanation.ts';
import { formatOrigin, reasonSigns } from '../text/explain.ts';
import { formatMoment } from './parts.ts';
import type { Html } from './template.ts';
import { markup } from './template.ts';

const words: Readonly<Record<ReasonMark, string>> = {
  yes: 'as it must be:',
  no: 'in the way:',
  unknown: 'unknown:',
  note: '',
};

function renderReason(reason: Reason): Html {
  const { mark, text, change, since, parts } = reason;
  const [word, origin] = [words[mark], formatOrigin(reason)];
  return markup`<li class="${mark}">
<span class="sign" aria-hidden="true">${reasonSigns[mark]}</span>
${word !== '' && markup`<span class="sr">${word}</span> `}
<span>${text}${since !== null && `, since ${formatMoment(since)}`}</span>
${origin !== '' && markup`<small>${origin}</small>`}
${change !== null && markup`<span class="cure">→ ${change}</span>`}
${parts.length > 0 && markup`<ul>${parts.map(renderReason)}</ul>`}</li>
`;
}

/** An explanation in words. */
export const renderReasonTree = ({ answer, change, reasons }: Explanation): Html => markup`
<p class="answer">${answer}</p>
${change !== null && markup`<p class="cure">→ ${change}</p>`}
<ul class="tree">${reasons.map(renderReason)}</ul>`;
