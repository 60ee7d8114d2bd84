import { isStandardSchema, type ToolSchema, toJsonSchema } from '@sibyl/plugin-kit/host';
import { describeIssues, type JsonObject, measureJson, type Result } from '@sibyl/protocol';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { AgentTool } from './agent.js';
import { assertCheckable, checkJson, isObject, type JsonSchema, mapSchema } from './json-schema.js';

const TIMEOUT_MS = 60_000;
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Converts a definition to a tool for the agent; the error describes why the tool must be left out. */
export function toAgentTool(
  definition: ToolDefinition,
): Result<{ readonly tool: AgentTool; readonly characters: number }, string> {
  const { name, description, inputSchema, timeoutMs = TIMEOUT_MS } = definition;
  if (!NAME.test(name)) {
    return { error: 'its name may contain only letters, digits, _ and -, at most 64' };
  }
  let reading = known.get(inputSchema);
  if (reading === undefined) {
    reading = readInputSchema(inputSchema);
    known.set(inputSchema, reading);
  }
  if (!reading.ok) return reading;
  const { json, characters, check } = reading.ok;
  const { event, isAgent, run } = definition;
  const tool = { name, description, inputSchema: json, timeoutMs, event, isAgent, check, run };
  return { ok: { tool, characters } };
}

/** The schema of a tool's input, and its validation. */
interface InputSchema {
  readonly json: JsonObject;
  /** Approximate length of its JSON text. */
  readonly characters: number;
  readonly check: AgentTool['check'];
}

// Plugins reuse their schemas in every turn; schemas of a message are garbage collected with it.
const known = new WeakMap<object, Result<InputSchema, string>>();

/** Reads a Standard Schema or JSON Schema; the error describes why it is unusable. */
function readInputSchema(schema: ToolSchema): Result<InputSchema, string> {
  try {
    return { ok: isStandardSchema(schema) ? readStandardSchema(schema) : readJsonSchema(schema) };
  } catch (error) {
    return { error: `its schema cannot be used: ${(error as Error).message}` };
  }
}

function readStandardSchema(schema: StandardSchemaV1): InputSchema {
  const whole = toObjectSchema(inlineReferences(toJsonSchema(schema)));
  return describe(whole, async (input) => {
    const result = await schema['~standard'].validate(input);
    if (!result.issues) return { ok: result.value as JsonObject };
    return { error: describeIssues(result.issues, 'input') };
  });
}

function readJsonSchema(schema: JsonObject): InputSchema {
  const whole = toObjectSchema(inlineReferences(schema, assertCheckable));
  return describe(whole, (input) => {
    const { value, issues } = checkJson(whole, input);
    if (issues.length === 0) return { ok: value as JsonObject };
    return { error: describeIssues(issues, 'input') };
  });
}

/** Converts the schema of an answer to JSON Schema without references; throws an error that describes why it is unusable. */
export function readAnswerSchema(schema: ToolSchema): JsonObject {
  return inlineReferences(
    isStandardSchema(schema) ? toJsonSchema(schema) : schema,
    assertCheckable,
  );
}

/** The schema of an answer, without references, and the errors of a value in it. */
export interface ResponseSchema {
  readonly json: JsonObject;
  readonly check: (value: unknown) => Result<unknown, readonly string[]>;
}

/** Reads the JSON Schema of an answer, of any type; the error describes why it is unusable. */
export function readResponseSchema(schema: JsonObject): Result<ResponseSchema, string> {
  try {
    const json = inlineReferences(schema, assertCheckable);
    const check: ResponseSchema['check'] = (answer) => {
      const { value, issues } = checkJson(json, answer);
      return issues.length === 0 ? { ok: value } : { error: describeIssues(issues, 'answer') };
    };
    return { ok: { json, check } };
  } catch (error) {
    return { error: `it cannot be used: ${(error as Error).message}` };
  }
}

function describe(whole: JsonObject, check: AgentTool['check']): InputSchema {
  const json = flattenAlternatives(whole);
  return { json, characters: measure(json), check };
}

/** Limits of a schema, as received and with its references resolved: all of it is sent to the model. */
const SCHEMA_LIMITS = { depth: 100, values: 10_000, characters: 128 * 1024 };
/** Limits the schemas and keywords after resolving references, which can make a small text arbitrarily large. */
const MAX_SCHEMAS = 500;
const MAX_KEYWORDS = 5000;

/**
 * Replaces every `$ref` by its target, because not every provider follows references. A recursive reference becomes
 * "anything". Throws if the result is too large, if a target does not exist, or if `assertUsable` throws.
 */
function inlineReferences(
  root: JsonObject,
  assertUsable: (schema: JsonObject) => void = () => undefined,
): JsonObject {
  let schemas = 0;
  let keywords = 0;
  measure(root);

  function inline(schema: JsonSchema, open: ReadonlySet<string>): JsonSchema {
    schemas += 1;
    keywords += Object.keys(schema).length;
    if (schemas > MAX_SCHEMAS || keywords > MAX_KEYWORDS) throw new Error('it is too large');
    if (typeof schema === 'boolean') return schema;
    assertUsable(schema);
    const { $ref, $schema, $defs, definitions, ...own } = schema;
    const mapped = unwrap(mapSchema(own, (inner) => inline(inner, open)));
    if (typeof $ref !== 'string') return mapped;
    if (open.has($ref)) return mapped;
    const target = inline(resolve(root, $ref), new Set([...open, $ref]));
    return typeof target === 'boolean' ? target : { ...target, ...mapped };
  }

  const inlined = inline(root, new Set(['#']));
  if (typeof inlined === 'boolean') return {};
  measure(inlined);
  return inlined;
}

/** Returns the approximate length of a schema as JSON; throws if it exceeds a limit. */
function measure(schema: JsonObject): number {
  const { characters, excess } = measureJson(schema, SCHEMA_LIMITS);
  if (excess) throw new Error(`it ${excess}`);
  return characters;
}

/** Some tools write a reference with a description as `allOf` with one schema. */
function unwrap(schema: JsonObject): JsonObject {
  const { allOf, ...rest } = schema;
  const [only, ...more] = Array.isArray(allOf) ? allOf : [];
  return isObject(only) && more.length === 0 ? { ...only, ...rest } : schema;
}

function resolve(root: JsonObject, reference: string): JsonSchema {
  if (!reference.startsWith('#')) throw new Error(`it refers to another document: ${reference}`);
  const path = decodeURIComponent(reference.slice(1)).split('/').slice(1);
  let found: unknown = root;
  for (const part of path) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    const holder: object = Object(found);
    found = Object.hasOwn(holder, name) ? Reflect.get(holder, name) : undefined;
  }
  if (isObject(found) || typeof found === 'boolean') return found;
  throw new Error(`it refers to a missing definition: ${reference}`);
}

/** Makes sure that the root of the schema is an object. */
function toObjectSchema(schema: JsonObject): JsonObject {
  const { type = 'object' } = schema;
  if (type !== 'object') throw new Error('it must describe an object');
  return { ...schema, type, properties: schema.properties ?? {} };
}

/**
 * Merges alternatives at the root into one object for the model, because most providers reject them there. Validation
 * still uses the original schema.
 */
function flattenAlternatives(schema: JsonObject): JsonObject {
  const { anyOf, oneOf, allOf, ...rest } = schema;
  const either = [...filterObjects(anyOf), ...filterObjects(oneOf)];
  const every = filterObjects(allOf);
  if (either.length + every.length === 0) return rest;
  const all = [rest, ...every, ...either];
  return { ...rest, properties: mergeFields(all), ...mergeRequired(rest, every, either) };
}

function mergeFields(schemas: readonly JsonObject[]): JsonObject {
  const names = new Set(schemas.flatMap(({ properties }) => Object.keys(Object(properties))));
  return Object.fromEntries([...names].map((name) => [name, mergeField(schemas, name)]));
}

/** A field that differs between alternatives accepts any of its types. */
function mergeField(schemas: readonly JsonObject[], name: string): unknown {
  const kinds = new Map<string, unknown>();
  for (const { properties } of schemas) {
    if (!isObject(properties) || !Object.hasOwn(properties, name)) continue;
    kinds.set(JSON.stringify(properties[name]), properties[name]);
  }
  const [only, ...more] = kinds.values();
  return more.length === 0 ? only : { anyOf: [...kinds.values()] };
}

function mergeRequired(
  rest: JsonObject,
  every: readonly JsonObject[],
  either: readonly JsonObject[],
): JsonObject {
  const [first = [], ...others] = either.map(listRequired);
  const otherNames = others.map((names) => new Set(names));
  const shared = first.filter((name) => otherNames.every((names) => names.has(name)));
  const required = new Set([...[rest, ...every].flatMap(listRequired), ...shared]);
  return required.size > 0 ? { required: [...required] } : {};
}

function listRequired({ required }: JsonObject): string[] {
  return Array.isArray(required) ? required.map(String) : [];
}

function filterObjects(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** A tool as a plugin, a page or an MCP server describes it. */
export interface ToolDefinition {
  /** Letters, digits, `_` and `-`, at most 64, as every provider accepts. */
  readonly name: string;
  readonly description: string;
  /** A zod schema or JSON Schema, of an object; an empty one means any object. */
  readonly inputSchema: ToolSchema;
  /** Timeout of one call; one minute by default. */
  readonly timeoutMs?: number | undefined;
  readonly event?: AgentTool['event'];
  readonly isAgent?: AgentTool['isAgent'];
  readonly run: AgentTool['run'];
}
