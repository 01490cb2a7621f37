// What a file that the user names as input contains. A report of this program is an error that says
// so, since people keep dumps, recordings and reports side by side.

import { inputKind } from '../../cluster/files/input-kind.ts';
import { UsageError } from './process.ts';

const reports = {
  report: 'a report (-o json or yaml)',
  sarif: 'a SARIF file (-o sarif)',
  junit: 'a JUnit file (-o junit)',
} as const;

/**
 * Whether a file is a recording or a dump; `null`: neither. Throws a UsageError for a report of
 * this program, and another error if the file cannot be opened.
 */
export async function readInputKind(path: string): Promise<'recording' | 'dump' | null> {
  const kind = await inputKind(path);
  if (kind === null || kind === 'recording' || kind === 'dump') return kind;
  const use = kind === 'report' ? '; a report of audit or replay can be the --baseline' : '';
  throw new UsageError(`${path} is ${reports[kind]}, not a dump or a recording${use}`);
}
