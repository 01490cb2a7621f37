// uPlot, which draws the charts in the browser, as text to be served. Where the sources run it is
// read from the package; the bundle holds it instead of this file's reading (esbuild.config.ts).

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const path = createRequire(import.meta.url).resolve('uplot/dist/uPlot.iife.min.js');

/** A script that defines `uPlot`. */
export const uplotScript: string = readFileSync(path, 'utf8');
