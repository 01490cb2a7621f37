import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { askServer, type ExplainOptions, explainSubject } from '../../src/commands/explain.ts';

const asked: string[] = [];
let answer: { code: number; text: string } = { code: 200, text: '' };
const server = createServer((request, response) => {
  asked.push(request.url ?? '');
  response.writeHead(answer.code).end(answer.text);
});

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const address = (): string => `127.0.0.1:${String((server.address() as AddressInfo).port)}`;

test('sends the words unchanged, below any path', async () => {
  answer = { code: 200, text: '{"format":1,"kind":"explain","answer":"so"}' };
  for (const url of [`http://${address()}`, address(), `http://${address()}/audit/`]) {
    expect(await askServer(url, ['pod/a&b', 'service/web'], 'shop')).toMatchObject({
      answer: 'so',
    });
  }
  const query = 'explain?subject=pod%2Fa%26b&subject=service%2Fweb&namespace=shop';
  expect(asked).toEqual([`/api/v1/${query}`, `/api/v1/${query}`, `/audit/api/v1/${query}`]);
});

test.each([
  [404, '{"format":1,"kind":"explain","found":false}', { found: false }],
  [503, '{"format":1,"error":"The first lists are awaited"}', 'The first lists are awaited'],
  [200, '{}', 'answers 200, but not with an explanation'],
  [200, '<html>', 'gives no explanation'],
])('%d %s', async (code, text, want) => {
  answer = { code, text };
  const got = askServer(address(), ['service/web'], null);
  if (typeof want === 'string') await expect(got).rejects.toThrow(want);
  else expect(await got).toMatchObject(want);
});

test('an answer without end is not read, and one that only looks right is an error', async () => {
  answer = { code: 200, text: `"${'x'.repeat(17 * 1024 * 1024)}"` };
  const asking = askServer(address(), ['service/web'], null);
  await expect(asking).rejects.toThrow('its answer is longer than 16777216 bytes');
  answer = { code: 200, text: '{"format":1,"kind":"explain"}' };
  const options = { server: address(), output: 'text' } as unknown as ExplainOptions;
  const printing = explainSubject(['service/web'], options);
  await expect(printing).rejects.toThrow('its answer is not an explanation');
});

test('a server that does not answer is reported', async () => {
  await expect(askServer('http://127.0.0.1:1', ['service/web'], null)).rejects.toThrow(
    'http://127.0.0.1:1 gives no explanation: ',
  );
  await expect(askServer('http://', ['service/web'], null)).rejects.toThrow('expected a URL');
});
