import type { JsonObject } from '@sibyl/protocol';
import { isObject } from './map-schema.js';

/** The schema with an object at its root, which says so; throws for anything else. */
export function toObjectSchema(schema: JsonObject): JsonObject {
  const { type = 'object' } = schema;
  if (type !== 'object') throw new Error('it must describe an object');
  return { ...schema, type, properties: schema.properties ?? {} };
}

/**
 * The schema as a model is told: most providers refuse alternatives at the root, so their fields
 * are laid side by side. Checking still knows which belong together.
 */
export function layAlternativesFlat(schema: JsonObject): JsonObject {
  const { anyOf, oneOf, allOf, ...rest } = schema;
  const either = [...listOf(anyOf), ...listOf(oneOf)];
  const every = listOf(allOf);
  if (either.length + every.length === 0) return rest;
  const all = [rest, ...every, ...either];
  return { ...rest, properties: mergeFields(all), ...requiredOf(rest, every, either) };
}

function mergeFields(schemas: readonly JsonObject[]): JsonObject {
  const names = new Set(schemas.flatMap(({ properties }) => Object.keys(Object(properties))));
  return Object.fromEntries([...names].map((name) => [name, mergeField(schemas, name)]));
}

/** A field that differs between alternatives may be any of its kinds. */
function mergeField(schemas: readonly JsonObject[], name: string): unknown {
  const kinds = new Map<string, unknown>();
  for (const { properties } of schemas) {
    if (!isObject(properties) || !Object.hasOwn(properties, name)) continue;
    kinds.set(JSON.stringify(properties[name]), properties[name]);
  }
  const [only, ...more] = kinds.values();
  return more.length === 0 ? only : { anyOf: [...kinds.values()] };
}

function requiredOf(
  rest: JsonObject,
  every: readonly JsonObject[],
  either: readonly JsonObject[],
): JsonObject {
  const [first = [], ...others] = either.map(namesRequired);
  const otherNames = others.map((names) => new Set(names));
  const shared = first.filter((name) => otherNames.every((names) => names.has(name)));
  const required = new Set([...[rest, ...every].flatMap(namesRequired), ...shared]);
  return required.size > 0 ? { required: [...required] } : {};
}

function namesRequired({ required }: JsonObject): string[] {
  return Array.isArray(required) ? required.map(String) : [];
}

function listOf(value: unknown): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}
