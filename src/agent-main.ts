// The program of the node agent, which the `agent` command executes (commands/agent.ts). Its
// argument is the options as JSON. The bundle is CommonJS: the module loader costs 3 MiB, and an
// `import` of node:http another 14 MiB, since it loads every export, including the client of
// `fetch`.

import { systemErrorText } from './cluster/decode/problem.ts';
import { agent, type AgentOptions, logProblem } from './commands/agent.ts';

const options = JSON.parse(process.argv[2] ?? '') as AgentOptions;

agent(options).catch(async (error: unknown) => {
  const text = systemErrorText(error) ?? (error instanceof Error ? error.message : String(error));
  await logProblem(options.logFormat ?? 'text', text);
  process.exitCode = 2;
});
