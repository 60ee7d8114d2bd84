import { contractTests, createTestRuntime, type TestRuntime } from '@sibyl/plugin-kit/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dice } from '../src/dice.js';

describe('the dice plugin', () => {
  let runtime: TestRuntime;

  beforeAll(async () => {
    runtime = await createTestRuntime({ plugins: [dice] });
  });
  afterAll(() => runtime.close());

  it('rolls as many dice as asked for', async () => {
    const turn = await runtime.turn();
    const number = expect.any(Number);
    const result = await turn.callTool('roll_dice', { count: 3, sides: 6 });
    expect(result).toMatchObject({ rolls: [number, number, number] });
  });

  for (const { name, run } of contractTests(dice)) it(name, run);
});
