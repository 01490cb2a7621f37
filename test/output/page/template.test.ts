import { expect, test } from 'vitest';

import { markup } from '../../../src/output/page/parts.ts';
import { hostileNames } from '../samples.ts';

const item = (text: string) => markup`<li title="${text}">${text}</li>`;

test.each(hostileNames)('%j is escaped in text and in attributes', (text) => {
  const { html } = item(text);
  expect(html.match(/[<>]/g)).toHaveLength(4);
  expect(html.match(/"/g)).toHaveLength(2);
});

test('markup in a list is inserted unescaped', () => {
  expect(markup`<ul>${['a', '<b>'].map(item)}</ul>`.html).toBe(
    '<ul><li title="a">a</li><li title="&lt;b&gt;">&lt;b&gt;</li></ul>',
  );
});

test('null and false are empty, and 0 is not', () => {
  expect(markup`<p>${null}${false}${[]}${0}</p>`.html).toBe('<p>0</p>');
});

test('a line break after a value is omitted, and others are kept', () => {
  expect(
    markup`${1}
<b>
${2}

</b>`.html,
  ).toBe('1<b>\n2\n</b>');
});
