import { describeIssues, type JsonObject } from '@sibyl/protocol';
import { z } from 'zod';
import type { AgentTool } from '../agent.js';
import { RecentMap } from '../recent-map.js';
import { inlineReferences } from './inline-references.js';
import { layAlternativesFlat, toObjectSchema } from './to-object-schema.js';
import { withoutPatterns } from './without-patterns.js';

/** What a tool takes: as the model is told, and as its input is checked. */
export interface InputSchema {
  readonly json: JsonObject;
  readonly check: AgentTool['check'];
}

type Reading = { readonly ok: InputSchema } | { readonly fault: string };

// Plugins keep their schemas, so every turn asks for the same ones.
const known = new WeakMap<object, Reading>();
// Those of a browser come with every message, as new objects of the same text.
const knownTexts = new RecentMap<InputSchema>(500);
const TEXT_LIMIT = 20_000;

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
    return { ok: schema instanceof z.ZodType ? readZod(schema) : readText(schema) };
  } catch (fault) {
    return { fault: `its schema cannot be used: ${(fault as Error).message}` };
  }
}

function readText(schema: JsonObject): InputSchema {
  const text = JSON.stringify(schema);
  if (text.length > TEXT_LIMIT) return readJsonSchema(schema);
  const reading = knownTexts.get(text) ?? readJsonSchema(schema);
  knownTexts.set(text, reading);
  return reading;
}

function readZod(schema: z.ZodType): InputSchema {
  const { '~standard': _, ...written } = z.toJSONSchema(schema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    reused: 'inline',
  });
  const json = layAlternativesFlat(toObjectSchema(inlineReferences(written)));
  return { json, check: checkWith(schema) };
}

function readJsonSchema(schema: JsonObject): InputSchema {
  const whole = toObjectSchema(inlineReferences(schema));
  // A registry of its own: ids in foreign schemas must not meet those of ours.
  const parser = z.fromJSONSchema(withoutPatterns(whole), { registry: z.registry() });
  const check = checkWith(parser);
  const required = Array.isArray(whole.required) ? whole.required.map(String) : [];
  return {
    json: layAlternativesFlat(whole),
    // The parser misses names that are required without being described.
    check: (input) => {
      const missing = required.filter((name) => !Object.hasOwn(Object(input), name));
      if (missing.length > 0) return { faults: missing.map((name) => `${name}: is required`) };
      return check(input);
    },
  };
}

function checkWith(schema: z.ZodType): AgentTool['check'] {
  return (input) => {
    const parsed = schema.safeParse(input);
    if (parsed.success) return { ok: parsed.data as JsonObject };
    return { faults: describeIssues(parsed.error.issues, 'input') };
  };
}
