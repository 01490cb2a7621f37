import { expect, test } from 'vitest';

import { style } from '../../../src/output/page/asset-texts.ts';

/** Colours by name, of one theme. */
function coloursIn(text: string): Map<string, string> {
  return new Map(
    [...text.matchAll(/--([\w-]+): (#[0-9a-f]{3,6})\b/gi)].map(([, name = '', value = '']) => [
      name,
      value,
    ]),
  );
}

function luminance(colour: string): number {
  const long = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, '$&$&') : colour;
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = parseInt(long.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: string, b: string): number {
  const [dark = 0, light = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

const [light = '', dark = ''] = [...style.matchAll(/:root \{[^}]*\}/g)].map(([text]) => text);

test.each([
  ['light', light],
  ['dark', dark],
])('%s: every text has enough contrast on each of its backgrounds', (_, theme) => {
  const colours = coloursIn(theme);
  const of = (name: string): string => colours.get(name) ?? '';
  const pairs = [
    ...['ink', 'dim', 'link', 'accent', 'critical', 'warning', 'info', 'ok'].flatMap((text) =>
      ['card', 'bg', 'soft'].map((ground) => [text, ground]),
    ),
    ...['critical', 'warning', 'info', 'ok'].map((tone) => [tone, `${tone}-bg`]),
    ...['critical', 'warning', 'info', 'ok'].map((tone) => ['ink', `${tone}-bg`]),
  ];
  const poor = pairs.filter(([a = '', b = '']) => contrast(of(a), of(b)) < 4.5);
  expect(poor).toEqual([]);
});

test.each([
  ['light', light],
  ['dark', dark],
])('%s: every line of the chart is visible on its card', (_, theme) => {
  const colours = coloursIn(theme);
  const lines = ['line-1', 'line-2', 'line-3', 'line-4'].map((name) => colours.get(name) ?? '#000');
  expect(new Set(lines).size).toBe(4);
  const card = colours.get('card') ?? '';
  expect(lines.filter((colour) => contrast(colour, card) < 4)).toEqual([]);
});

test('the style sheet loads no other file', () => {
  expect(style).not.toMatch(/url\(|@import|https?:/);
});
