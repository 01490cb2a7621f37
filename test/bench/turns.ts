// Preloaded into the program under measurement (`node --import`): for how long its loop was busy
// without a pause, in CPU time of its own thread, so that other work on the core does not count.
//
// A timer of 5 ms looks at the clock of the thread. The time between two looks is what a
// request had to wait that came just after the first, and up to 5 ms more where turns were short.
// On SIGUSR2 the longest is written to the file that TURNS names, and forgotten.

import { writeFileSync } from 'node:fs';

const interval = 5;

function millis(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

let before = millis();
let longest = 0;

setInterval(() => {
  const now = millis();
  longest = Math.max(longest, now - before);
  before = now;
}, interval).unref();

process.on('SIGUSR2', () => {
  writeFileSync(process.env.TURNS ?? '/dev/null', String(longest));
  longest = 0;
});
