// The program of the node agent, which the `agent` command executes (commands/agent.ts). Its
// argument is the options as JSON. The bundle is CommonJS: the module loader costs 3 MiB, and an
// `import` of node:http another 14 MiB, since it loads every export, including the client of
// `fetch`.

import { printable, systemErrorText } from './cluster/decode/problem.ts';
import { agent, type AgentOptions } from './commands/agent.ts';

agent(JSON.parse(process.argv[2] ?? '') as AgentOptions).catch((error: unknown) => {
  const text = systemErrorText(error) ?? (error instanceof Error ? error.message : String(error));
  process.stderr.write(`endpoint-auditor: ${printable(text)}\n`);
  process.exitCode = 2;
});
