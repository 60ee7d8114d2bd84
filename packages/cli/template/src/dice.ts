import { randomInt } from 'node:crypto';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { z } from 'zod';

/** What the agent can do with it: one tool. */
const rollDice = defineTool({
  name: 'roll_dice',
  description: 'Rolls dice. Call it whenever the user wants something decided by chance.',
  inputSchema: z.object({
    count: z.int().min(1).max(20),
    sides: z.int().min(2).max(100).default(6),
  }),
  run: ({ count, sides }) => {
    const rolls = Array.from({ length: count }, () => randomInt(1, sides + 1));
    return { rolls, sum: rolls.reduce((sum, roll) => sum + roll, 0) };
  },
});

/** A plugin: what it is, when to use it, and what it contributes. */
export const dice = definePlugin({
  name: 'dice',
  version: '0.1.0',
  manifest: {
    title: 'Dice',
    summary: 'Rolls dice, so that chance decides.',
    whenToUse: ['the user wants to roll dice, draw lots or leave something to chance'],
    examples: ['use roll_dice with count: 2'],
    category: 'games',
    visibility: 'always',
  },
  getTools: () => [rollDice],
});
