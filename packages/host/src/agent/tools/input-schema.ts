import { describeIssues, type JsonObject, measureJson } from '@sibyl/protocol';
import { z } from 'zod';
import type { AgentTool } from '../agent.js';
import { assertCheckable, checkJson } from './check-json.js';
import { inlineReferences, SCHEMA_LIMITS } from './inline-references.js';
import { layAlternativesFlat, toObjectSchema } from './to-object-schema.js';

/** What a tool takes: as the model is told, and as its input is checked. */
export interface InputSchema {
  readonly json: JsonObject;
  /** About the length of its JSON text. */
  readonly characters: number;
  readonly check: AgentTool['check'];
}

type Reading = { readonly ok: InputSchema } | { readonly fault: string };

// Plugins keep their schemas, so every turn asks for the same ones. Those of a message go with it.
const known = new WeakMap<object, Reading>();

/** Reads a zod schema or JSON Schema; one that is unusable gives a fault, in words. */
export function readInputSchema(schema: z.ZodType | JsonObject): Reading {
  let reading = known.get(schema);
  if (reading === undefined) {
    reading = read(schema);
    known.set(schema, reading);
  }
  return reading;
}

function read(schema: z.ZodType | JsonObject): Reading {
  try {
    return { ok: schema instanceof z.ZodType ? readZod(schema) : readJsonSchema(schema) };
  } catch (fault) {
    return { fault: `its schema cannot be used: ${(fault as Error).message}` };
  }
}

function readZod(schema: z.ZodType): InputSchema {
  const { '~standard': _, ...written } = z.toJSONSchema(schema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    reused: 'inline',
  });
  const whole = toObjectSchema(inlineReferences(written));
  return describe(whole, (input) => {
    const parsed = schema.safeParse(input);
    if (parsed.success) return { ok: parsed.data as JsonObject };
    return { faults: describeIssues(parsed.error.issues, 'input') };
  });
}

function readJsonSchema(schema: JsonObject): InputSchema {
  const whole = toObjectSchema(inlineReferences(schema, assertCheckable));
  return describe(whole, (input) => {
    const { value, issues } = checkJson(whole, input);
    if (issues.length === 0) return { ok: value as JsonObject };
    return { faults: describeIssues(issues, 'input') };
  });
}

function describe(whole: JsonObject, check: AgentTool['check']): InputSchema {
  const json = layAlternativesFlat(whole);
  const { characters, excess } = measureJson(json, SCHEMA_LIMITS);
  if (excess) throw new Error(`it ${excess}`);
  return { json, characters, check };
}
