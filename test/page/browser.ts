// What the checks of the pages share: servers in processes of their own, and a browser whose
// complaints are kept.

import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { chromium } from 'playwright-core';

const root = join(import.meta.dirname, '../..');

export interface Server {
  readonly url: string;
  /** Writes a line and returns the next that is printed. */
  ask(line: string): Promise<string>;
  stop(): void;
}

/** Starts a program and waits for the line with its port. */
export async function startServer(args: readonly string[], port: RegExp): Promise<Server> {
  const child: ChildProcess = spawn(process.execPath, [...args], {
    cwd: root,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error('No pipes');
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error('The server ended');
    return value;
  };
  for (;;) {
    const found = port.exec(await next())?.[1];
    if (found === undefined) continue;
    return {
      url: `http://127.0.0.1:${found}`,
      ask(line) {
        stdin.write(`${line}\n`);
        return next();
      },
      stop: () => void child.kill(),
    };
  }
}

/** The program itself, with these arguments and any free port. */
export const serve = (...args: readonly string[]): Promise<Server> =>
  startServer(['src/main.ts', 'serve', '--listen', '127.0.0.1:0', ...args], /127\.0\.0\.1:(\d+)/);

const programs = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Chromium as the system has it; throws where there is none. */
export function startBrowser(): Promise<Browser> {
  const executablePath = process.env.CHROMIUM ?? programs.find((path) => existsSync(path));
  if (executablePath === undefined) {
    throw new Error('No chromium: install it (apt install chromium), or name it by CHROMIUM');
  }
  // Fonts are hinted alike everywhere, so that pictures change only with the pages.
  const args = ['--no-sandbox', '--font-render-hinting=none', '--disable-lcd-text'];
  return chromium.launch({ executablePath, args });
}

/** A page whose errors, on the console or not, are put into `complaints`. */
export async function openPage(
  browser: Browser,
  complaints: string[],
  options: BrowserContextOptions = {},
): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    complaints.push(`console at ${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`error at ${page.url()}: ${error.message}`));
  page.on('dialog', (dialog) => {
    complaints.push(`dialog at ${page.url()}`);
    void dialog.dismiss();
  });
  return page;
}
