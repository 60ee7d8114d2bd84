import assert from 'node:assert/strict';
import { z } from 'zod';
import type { Tool } from '../../tool.js';
import { checkInput } from '../tool-input.js';
import { hostileInputs } from './hostile-input.js';
import { inTime } from './in-time.js';
import type { ContractTest, Trial } from './trial.js';

const SHORTEST_DESCRIPTION = 20;

/** What the agent is given. */
export const toolTests = ({ use }: Trial): ContractTest[] => [
  {
    name: 'has tools with names of their own, and words that say when to use them',
    run: () =>
      use(async (runtime) => {
        const { tools } = await runtime.turn();
        const names = tools.map(({ name }) => name);
        assert.deepEqual(names, [...new Set(names)]);
        for (const { name, description } of tools)
          assert.ok(description.length >= SHORTEST_DESCRIPTION, `${name} says too little`);
      }),
  },
  {
    name: 'has tools that take objects a model can be told of',
    run: () =>
      use(async (runtime) => {
        for (const tool of (await runtime.turn()).tools) {
          const schema = jsonSchemaOf(tool);
          assert.equal(schema.type, 'object', `${tool.name} takes no object`);
        }
      }),
  },
  {
    name: 'has tools that answer with JSON or an error, whatever they are given',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const tool of turn.tools)
          for (const input of hostileInputs(fieldsOf(tool))) {
            if (!isAccepted(tool, input)) continue;
            const call = turn.callTool(tool.name, input);
            await inTime(tool.name, call).catch((error) => assert.ok(error instanceof Error));
          }
        assert.deepEqual(turn.faults, []);
        assert.equal(Object.hasOwn(Object.prototype, 'isAdmin'), false);
      }),
  },
];

type JsonSchema = Readonly<Record<string, unknown>>;

function jsonSchemaOf({ inputSchema }: Tool): JsonSchema {
  if (!(inputSchema instanceof z.ZodType)) return inputSchema;
  const schema = z.toJSONSchema(inputSchema, { io: 'input', unrepresentable: 'any' });
  // One that has an id is written as a reference to itself.
  const name = schema.$ref?.split('/').at(-1);
  return name ? ((schema.$defs?.[name] ?? {}) as JsonSchema) : schema;
}

function fieldsOf(tool: Tool): string[] {
  const { properties } = jsonSchemaOf(tool);
  return typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
}

function isAccepted(tool: Tool, input: unknown): boolean {
  try {
    checkInput(tool, input);
    return true;
  } catch {
    return false;
  }
}
