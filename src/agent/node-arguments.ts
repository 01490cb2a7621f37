// The arguments by which a process of the agent passes flags to Node.

import { isSea } from 'node:sea';

/** In a single-file executable, Node reads its flags from one argument. */
export const nodeArguments = (flags: readonly string[]): string[] =>
  isSea() ? [`--node-options=${flags.join(' ')}`] : [...flags];
