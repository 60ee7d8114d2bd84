import type { JsonObject } from '@sibyl/protocol';
import { isObject, type JsonSchema, mapSchema } from './map-schema.js';

/** References can make a small text a schema of any size; checking input takes as long as it is large. */
const SIZE_LIMIT = 500;

/**
 * Puts what `$ref` points to in its place, since not every provider follows references. Inside
 * itself a schema becomes "anything". Throws if it grows too large or points nowhere.
 */
export function inlineReferences(root: JsonObject): JsonObject {
  let size = 0;

  function inline(schema: JsonSchema, open: ReadonlySet<string>): JsonSchema {
    size += 1;
    if (size > SIZE_LIMIT) throw new Error('it is too large');
    if (typeof schema === 'boolean') return schema;
    const { $ref, $schema, $defs, definitions, ...own } = schema;
    const mapped = unwrap(mapSchema(own, (inner) => inline(inner, open)));
    if (typeof $ref !== 'string') return mapped;
    if (open.has($ref)) return mapped;
    const target = inline(resolve(root, $ref), new Set([...open, $ref]));
    return typeof target === 'boolean' ? target : { ...target, ...mapped };
  }

  const inlined = inline(root, new Set(['#']));
  return typeof inlined === 'boolean' ? {} : inlined;
}

/** `allOf` with one schema in it is how some tools write a reference with a description. */
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
  throw new Error(`it refers to what is not there: ${reference}`);
}
