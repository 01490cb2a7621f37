// The agent as a program of its own, which the process of the command line becomes
// (commands/agent.ts): `agent OPTIONS`, the options as JSON. In the bundle it is CommonJS: the
// loader of modules costs 3 MiB, and `import` of Node's HTTP another 14, since it loads all that
// this exports, a client for `fetch` among it.

import { systemErrorText } from './cluster/decode/problem.ts';
import type { AgentOptions } from './commands/agent.ts';
import { agent } from './commands/agent.ts';

agent(JSON.parse(process.argv[2] ?? '') as AgentOptions).catch((error: unknown) => {
  const text = systemErrorText(error) ?? (error instanceof Error ? error.message : String(error));
  process.stderr.write(`endpoint-auditor: ${text}\n`);
  process.exitCode = 2;
});
