import { describe, expect, test } from 'vitest';

import type { Message } from '../../../../src/cluster/decode/protobuf/schema.ts';
import { entries, messages } from '../../../../src/cluster/decode/protobuf/schema.ts';
import type { Raw } from '../../../protobuf/fixtures.ts';
import { answers, itemOf, messages as written } from '../../../protobuf/fixtures.ts';

/** All tables below one, itself included. */
function* below(message: Message): Generator<Message> {
  yield message;
  for (const field of message) {
    if (field !== undefined && typeof field.type !== 'string') yield* below(field.type);
  }
}

const tables = [...Object.values(messages), ...Object.values(entries)].flatMap((message) => [
  ...below(message),
]);

/** Paths of the fields that a JSON object has and its table does not. */
function missing(message: Message, raw: Raw, path = ''): string[] {
  return Object.entries(raw).flatMap(([name, value]) => {
    const field = message.find((field) => field?.name === name);
    if (field === undefined) return [`${path}${name}`];
    const { type } = field;
    if (typeof type === 'string' || value === null) return [];
    const items = field.many === 'list' ? (value as Raw[]) : [value as Raw];
    return items.flatMap((item) => missing(type, item, `${path}${name}.`));
  });
}

describe('messages', () => {
  test('every field stands at its number, and no name is there twice', () => {
    for (const table of tables) {
      const fields = table.filter((field) => field !== undefined);
      expect(fields.map(({ number }) => table[number])).toEqual(fields);
      expect(new Set(fields.map(({ name }) => name)).size).toBe(fields.length);
    }
  });

  test('numbers fit into the bits by which fields are counted', () => {
    const measured = [messages.endpoints, messages.endpointslices];
    const numbers = measured.flatMap((message) => [...below(message)]).map(({ length }) => length);
    expect(Math.max(...numbers)).toBeLessThanOrEqual(32);
  });

  test.each(['endpoints', 'endpointslices'] as const)('%s are whole', (resource) => {
    const objects = written(answers()).filter((message) => message.resource === resource);
    expect(objects.length).toBeGreaterThan(1000);
    const absent = objects.flatMap(({ json }) => {
      const raw = itemOf(json);
      return missing(messages[resource], raw);
    });
    expect(new Set(absent)).toEqual(new Set());
  });
});
