// The assets of the pages. The address of each contains a hash of its content, so browsers may
// cache it forever. Pages load nothing from other servers.

import { createHash } from 'node:crypto';

import { clientScript, style, uplotScript } from './asset-texts.ts';

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" ' +
  'rx="8" fill="#0f766e"/><g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" ' +
  'stroke-linejoin="round"><path d="M7 11h9"/><path d="M7 21h6"/><path d="m17 20 3.5 3.5L26 ' +
  '13"/></g></svg>';

const contents = {
  'style.css': style,
  'page.js': clientScript,
  'charts.js': uplotScript,
  'icon.svg': icon,
};

/** The texts of the assets by their addresses. */
export const assets: ReadonlyMap<string, string> = new Map(
  Object.entries(contents).map(([name, text]) => {
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 12);
    return [`/assets/${hash}-${name}`, text];
  }),
);

export const assetPath = (name: keyof typeof contents): string =>
  [...assets.keys()].find((path) => path.endsWith(`-${name}`)) ?? '';
