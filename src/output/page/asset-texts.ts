// The style sheet and the script of the pages, as texts for browsers.
// The sources read them at the start; the bundle contains the texts instead (esbuild.config.ts).

import { readFileSync } from 'node:fs';

// A URL, so that the compiler does not follow it: only browser/ has the types of a browser.
const browser = new URL('./browser/client.ts', import.meta.url).href;
const functions = Object.values((await import(browser)) as Record<string, () => void>);

export const clientScript = `'use strict';\n${functions.map(String).join('\n')}\nstart();\n`;

export const style = readFileSync(new URL('./style.css', import.meta.url), 'utf8');
