// Renders an explanation on a page: the answer, the suggested change, and the tree of reasons, with
// the same signs as in a terminal (text/explain.ts).

import type { Explanation, Reason, ReasonMark } from '../../audit/explain/explanation.ts';
import { formatOrigin, reasonSigns } from '../text/explain.ts';
import { formatMoment } from './parts.ts';
import type { Html } from './template.ts';
import { joinHtml, noHtml, compileTemplate } from './template.ts';

const words: Readonly<Record<ReasonMark, string>> = {
  yes: 'as it must be:',
  no: 'in the way:',
  unknown: 'unknown:',
  note: '',
};

const reasonTemplate = compileTemplate(`
<li class="<%= it.mark %>"><span class="sign" aria-hidden="true"><%= it.sign %></span>
<% if (it.word !== '') { %><span class="sr"><%= it.word %></span> <% } %>
<span><%= it.text %></span>
<% if (it.by !== '') { %><small><%= it.by %></small><% } %>
<% if (it.change !== '') { %><span class="cure">→ <%= it.change %></span><% } %>
<%~ it.parts %></li>
`);

function reasonItem(reason: Reason): Html {
  const { mark, text, change, since, parts } = reason;
  return reasonTemplate({
    mark,
    sign: reasonSigns[mark],
    word: words[mark],
    text: since === null ? text : `${text}, since ${formatMoment(since)}`,
    by: formatOrigin(reason),
    change: change ?? '',
    parts: parts.length === 0 ? noHtml : (`<ul>${reasonList(parts)}</ul>` as Html),
  }).trimStart() as Html;
}

const reasonList = (reasons: readonly Reason[]): Html => joinHtml(reasons.map(reasonItem));

const treeTemplate = compileTemplate(`
<p class="answer"><%= it.answer %></p>
<% if (it.change !== '') { %><p class="cure">→ <%= it.change %></p><% } %>
<ul class="tree"><%~ it.list %></ul>`);

/** An explanation in words. */
export const renderReasonTree = ({ answer, change, reasons }: Explanation): Html =>
  treeTemplate({ answer, change: change ?? '', list: reasonList(reasons) });
