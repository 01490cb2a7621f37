// What tests do with problems that they do not expect.

import type { Problem } from '../src/cluster/decode/problem.ts';
import { problemText } from '../src/cluster/decode/problem.ts';

/** Fails the test that reports a problem which it does not expect. */
export function throwProblem(problem: Problem): never {
  throw new Error(`unexpected problem: ${problemText(problem)}`);
}
