// The documentation of the installed version as pages.

import { Marked } from 'marked';

import type { PageStatus } from '../../auditor/queries.ts';
import { getOrInsert } from '../../model/collections.ts';
import { escapeMarkup } from '../text/format.ts';
import { documentNames, readDocumentFile } from './document-files.ts';
import { renderFrame } from './frame.ts';
import { type Html, markup } from './parts.ts';

const readme = 'README.md';

function readDocuments() {
  const names = documentNames.filter((name) => name.endsWith('.md') && name !== readme);
  const all = names.length === 0 ? [] : [readme, ...names];
  return new Map(
    all.map((name) => {
      // Links as they are in docs/.
      const text = String(readDocumentFile(name))
        .replaceAll(/(\]\(|")docs\//g, '$1')
        .replaceAll('](../README.md', '](README.md');
      const [, title = name] = /^# (.+)$/m.exec(text) ?? [];
      return [name, { title: title.replaceAll('`', ''), text }] as const;
    }),
  );
}

const documents = readDocuments();

/** The anchor of a heading, as GitHub makes it. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w -]/g, '')
    .replaceAll(' ', '-');

const marked = new Marked({
  renderer: {
    heading({ tokens, depth, text }) {
      const content = this.parser.parseInline(tokens);
      return `<h${depth} id="${anchorOf(text)}">${content}</h${depth}>\n`;
    },
    code: ({ text }) => `<pre tabindex="0"><code>${escapeMarkup(text)}</code></pre>\n`,
    link({ href, tokens }) {
      const content = this.parser.parseInline(tokens);
      const [path = ''] = href.split('#');
      const isServed = path === '' || documents.has(path) || /^https?:/.test(path);
      // Other files of the repository are not installed.
      return isServed ? `<a href="${escapeMarkup(href)}">${content}</a>` : content;
    },
  },
});

const rendered = new Map<string, Html>();

/** Renders a document once. */
const renderText = (name: string, text: string): Html =>
  getOrInsert(rendered, name, () => ({
    html: marked
      .parse(text, { async: false })
      .replaceAll('<table>', '<div class="scroll" tabindex="0"><table>')
      .replaceAll('</table>', '</table></div>'),
  }));

/** The page of a document; null if there is none of that name. */
export function renderDocument(status: PageStatus, name: string): string | null {
  const document = documents.get(name);
  if (document === undefined) return null;
  const items = [...documents].map(([other, { title }]) => {
    const current = other === name && markup` aria-current="page"`;
    return markup`<li><a href="/docs/${other}"${current}>${title}</a></li>
`;
  });
  const main = markup`<div class="document"><nav aria-label="Documents"><ul>${items}</ul></nav>
<article class="card prose">${renderText(name, document.text)}</article></div>`;
  return renderFrame(status, '/docs', document.title, main);
}
