// The log of commands that run until they are stopped: its two formats, and one line per message.

import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createLog, type LogFormat } from '../../../src/commands/shared/log.ts';
import { hides, hostileText } from '../../output/samples.ts';

function linesOf(format: LogFormat, write: (log: ReturnType<typeof createLog>) => void): string[] {
  const lines: string[] = [];
  write(createLog(format, (line) => lines.push(line)));
  return lines;
}

const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;

test('text has the time, the level and the message', () => {
  const lines = linesOf('text', (log) => {
    log('error', 'it failed');
    log('warn', 'it is slow');
    log('info', 'it works again');
  });
  expect(lines.map((line) => line.replace(new RegExp(`^${time}`), 'TIME'))).toEqual([
    'TIME ERROR it failed\n',
    'TIME WARN it is slow\n',
    'TIME INFO it works again\n',
  ]);
});

test('JSON has the same fields, and nothing about the process', () => {
  const [line = ''] = linesOf('json', (log) => log('warn', 'it is "slow"'));
  expect(JSON.parse(line)).toEqual({
    level: 'warn',
    time: expect.stringMatching(new RegExp(`^${time}$`)) as string,
    msg: 'it is "slow"',
  });
});

test.each(['text', 'json'] as const)('a message in %s adds no line and hides nothing', (format) => {
  const forged = 'a\n2026-11-26T05:00:00.000Z INFO b\r\u001b[2K\u2028';
  fc.assert(
    fc.property(fc.oneof(fc.constant(forged), hostileText), (text) => {
      const lines = linesOf(format, (log) => log('error', text));
      expect(lines).toHaveLength(1);
      expect(lines[0]?.split('\n')).toHaveLength(2);
      expect(hides(lines[0] ?? '')).toBe(false);
    }),
  );
});
