// Every panel of every board before a real Prometheus that holds what was shown while the recording
// was made: `npm run panels`. Each expression, and each variable, must be answered, one of each
// panel not by 0 alone, unless `silent` lists the panel with the reason. With --pictures, what
// is answered is drawn to docs/images.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { ask, startPrometheus } from '../prometheus/server.ts';
import type { Answered } from './answers.ts';
import {
  answersFor,
  fill,
  flags,
  interval,
  listedBy,
  names,
  readBoard,
  shownPanels,
} from './answers.ts';
import { draw } from './pictures.ts';

const recording = join(import.meta.dirname, '../recordings/shop.ndjson.gz');

const notLive = 'a recording has no watches';
const allKnown = 'the recording has everything that judging needs';
const noAgents = 'the rules are in the recording, so that no agent is asked';
const noBackend = 'nobody is there to take traces';

/** Panels that the recording leaves at 0 or without an answer, and why. */
const silent: Readonly<Record<string, string>> = {
  'overview: Cannot be judged': allKnown,
  'overview: Why it cannot be judged': allKnown,
  'overview: Resources not seen': notLive,
  'overview: Watches begun anew': notLive,
  'overview: Input that was not used': 'the recording is whole',
  'overview: Differences read again': 'a recording cannot be asked again',
  'lag: Journeys with a trace': noBackend,
  'lag: Spans': noBackend,
  'endpointslices: Services that ask for hints and have none': 'all that ask for hints have them',
  'nodes: Why a node cannot be judged': allKnown,
  'nodes: Agents': noAgents,
  'nodes: Oldest report': noAgents,
  'nodes: Frontends that diverge': noAgents,
  'nodes: Visits to agents': noAgents,
  'nodes: Bytes of their answers': noAgents,
  'nodes: Rounds that failed': noAgents,
  'nodes: CPU of the agents': noAgents,
  'nodes: Memory of the agents': noAgents,
  'nodes: Rules that were read': noAgents,
};

const problems: string[] = [];

function check(isRight: boolean, what: string): void {
  if (!isRight) problems.push(what);
}

/** Each expression must be answered, and one of them not by nothing but 0. */
function checkPanel(place: string, { answers }: Answered): void {
  const values = answers.map(({ series }) => series.flatMap((one) => one.values));
  const [filled, told] = [
    values.every((of) => of.some(([, value]) => value !== 'NaN')),
    values.some((of) => of.some(([, value]) => value !== 'NaN' && Number(value) !== 0)),
  ];
  const isSilent = place in silent;
  const unanswered = answers.filter((_, index) => values[index]?.length === 0);
  for (const { expr } of unanswered) check(isSilent, `${place}: nothing answers ${expr}`);
  check((filled && told) || isSilent, `${place}: nothing but 0, and no reason is known for that`);
  check(!(filled && told) || !isSilent, `${place}: filled, though a reason is known why it is not`);
}

async function run(directory: string): Promise<void> {
  const span = await fill(directory, recording);
  const server = await startPrometheus(directory, {}, flags);
  try {
    let panels = 0;
    for (const name of names) {
      const board = readBoard(name);
      for (const variable of board.templating.list.filter(({ type }) => type === 'query')) {
        // One cluster needs no label: then there is nothing to choose from.
        if (variable.name === 'cluster') continue;
        const { samples, label } = listedBy(variable);
        const match = samples.replace(/"\$\w+"/g, '".*"');
        const times = { start: String(span.from), end: String(span.to) };
        const query = { 'match[]': match, ...times };
        const values = await ask<string[]>(server.url, `label/${label}/values`, query);
        check(values.length > 0, `${name}: nothing to choose from for ${variable.name}`);
      }
      const answered = await answersFor(server.url, shownPanels(board), span, interval);
      for (const one of answered) checkPanel(`${name}: ${one.panel.title}`, one);
      panels += answered.length;
      if (process.argv.includes('--pictures')) await draw(name, board.panels, answered, span);
    }
    process.stdout.write(`${panels} panels of ${names.length} boards\n`);
  } finally {
    await server.stop();
  }
}

const began = performance.now();
const directory = await mkdtemp(join(tmpdir(), 'panels-'));
try {
  await run(directory);
} finally {
  await rm(directory, { recursive: true, force: true });
}
for (const problem of problems) process.stdout.write(`${problem}\n`);
const seconds = Math.round((performance.now() - began) / 1000);
process.stdout.write(`${problems.length} problems in ${seconds} s\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
