// Loaded into the auditor by `node --import` in the soak test: after a forced collection, it writes
// the memory of its process and what the process has open, as a line of JSON each.

import { appendFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const periodMs = 60_000;

const path = new URL(import.meta.url).searchParams.get('to');

if (path !== null) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as (options: object) => void;
  // A plain collection keeps compiled code, which grows for hours while more functions become hot.
  const options = { type: 'major', execution: 'sync', flavor: 'last-resort' };
  const sample = async (): Promise<void> => {
    // One collection finalizes objects, and the next one frees them. Some, such as those that an
    // AbortSignal leaves behind, go in a task between the two.
    for (let times = 0; times < 3; times++) {
      if (times > 0) await sleep(20, undefined, { ref: false });
      collect(options);
    }
    const { heapUsed: heap, rss } = process.memoryUsage();
    // Machine code and bytecode, and what belongs to them.
    const code = getHeapSpaceStatistics()
      .filter(({ space_name: name }) => /^(code|trusted)/.test(name))
      .reduce((sum, { space_used_size: size }) => sum + size, 0);
    const files = readdirSync('/proc/self/fd').length;
    // What keeps the event loop alive.
    const handles = process.getActiveResourcesInfo().length;
    const line = { at: Date.now() / 1000, heap, code, rss, files, handles };
    appendFileSync(path, `${JSON.stringify(line)}\n`);
  };
  setInterval(() => void sample(), periodMs).unref();
}
