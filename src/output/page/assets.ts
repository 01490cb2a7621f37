// The assets of the pages: style, scripts and the icon. The address of each contains a hash of its
// content, so browsers may cache it forever. Pages load nothing from other servers.

import { createHash } from 'node:crypto';

import { clientScript, style, uplotScript } from './asset-texts.ts';

export interface Asset {
  readonly type: string;
  readonly body: string;
}

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" ' +
  'rx="8" fill="#0f766e"/><g fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" ' +
  'stroke-linejoin="round"><path d="M7 11h9"/><path d="M7 21h6"/><path d="m17 20 3.5 3.5L26 ' +
  '13"/></g></svg>';

const contents = {
  'style.css': { type: 'text/css; charset=utf-8', body: style },
  'page.js': { type: 'text/javascript; charset=utf-8', body: clientScript },
  'charts.js': { type: 'text/javascript; charset=utf-8', body: uplotScript },
  'icon.svg': { type: 'image/svg+xml', body: icon },
} as const;

const assets = Object.entries(contents).map(([name, { type, body }]) => {
  const hash = createHash('sha256').update(body).digest('hex').slice(0, 12);
  return { name, file: `${hash}-${name}`, type, body };
});

/** The address of an asset. */
export const assetPath = (name: keyof typeof contents): string =>
  `/assets/${assets.find((asset) => asset.name === name)?.file ?? ''}`;

/** The asset at an address below /assets/; null if there is none of this version. */
export const findAsset = (file: string): Asset | null =>
  assets.find((asset) => asset.file === file) ?? null;
