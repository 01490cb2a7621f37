// What browsers run, as text to be served: the script of the pages (browser/client.ts) and uPlot,
// which draws the charts. Where the sources run, the one is joined from its functions and the other
// read from the package; the bundle holds both texts instead of this file (esbuild.config.ts).

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// An address, so that the compiler does not follow it: what a browser has is known nowhere else.
const browser = new URL('./browser/client.ts', import.meta.url).href;
const client = (await import(browser)) as { clientScript: string };

/** The script of every page. */
export const clientScript: string = client.clientScript;

const path = createRequire(import.meta.url).resolve('uplot/dist/uPlot.iife.min.js');

/** A script that defines `uPlot`. */
export const uplotScript: string = readFileSync(path, 'utf8');
