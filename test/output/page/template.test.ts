import { expect, test } from 'vitest';

import { joinHtml, noHtml, compileTemplate } from '../../../src/output/page/template.ts';
import { hostileNames } from '../samples.ts';

const item = compileTemplate('<li title="<%= it.text %>"><%= it.text %></li>');
const list = compileTemplate('<ul><%~ it.items %></ul>');

test.each(hostileNames)('%j is escaped in text and in attributes', (text) => {
  const html = item({ text });
  expect(html.match(/[<>]/g)).toHaveLength(4);
  expect(html.match(/"/g)).toHaveLength(2);
});

test('a template inserts the result of another template unescaped', () => {
  const items = joinHtml(['a', '<b>'].map((text) => item({ text })));
  expect(list({ items })).toBe('<ul><li title="a">a</li><li title="&lt;b&gt;">&lt;b&gt;</li></ul>');
  expect(list({ items: noHtml })).toBe('<ul></ul>');
});
