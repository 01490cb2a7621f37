import { expect, test } from 'vitest';

import { createGate } from '../../../../src/cluster/api/transport/mutex.ts';

test('one at a time, in the order of asking', async () => {
  const gate = createGate();
  const order: string[] = [];
  const pass = async (name: string) => {
    const leave = await gate.enter();
    order.push(`${name} in`);
    await Promise.resolve();
    order.push(`${name} out`);
    leave();
    leave();
  };
  await Promise.all([pass('a'), pass('b'), pass('c')]);
  expect(order).toEqual(['a in', 'a out', 'b in', 'b out', 'c in', 'c out']);
});
