// The log of commands that run until they are stopped: one line per message on stderr, as text or
// as JSON. pino writes at once, without a worker thread, so that a process that ends loses no line.

import { pino } from 'pino';

import { escapeInvisible } from '../../output/text/format.ts';

export type LogFormat = 'text' | 'json';

export type LogLevel = 'info' | 'warn' | 'error';

export type Log = (level: LogLevel, text: string) => void;

interface Line {
  readonly time: string;
  readonly level: string;
  readonly msg: string;
}

/** `2026-11-26T05:00:00.000Z ERROR message`. */
const formatLine = ({ time, level, msg }: Line): string =>
  `${time} ${level.toUpperCase()} ${msg}\n`;

/** A message is one line, whatever it contains. `write` gets complete lines. */
export function createLog(
  format: LogFormat,
  write: (line: string) => void = (line) => void process.stderr.write(line),
): Log {
  const logger = pino(
    {
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    { write: (line) => write(format === 'json' ? line : formatLine(JSON.parse(line) as Line)) },
  );
  return (level, text) => {
    logger[level](escapeInvisible(text));
  };
}
