import { type JsonObject, measureJson } from '@sibyl/protocol';
import { isObject, type JsonSchema, mapSchema } from './map-schema.js';

/** The most a schema may be, as it is sent and with its references resolved: all of it is sent to the model. */
export const SCHEMA_LIMITS = { depth: 100, values: 10_000, characters: 128 * 1024 };
/** References can make a small text a schema of any size: the schemas in it, and the keywords of all of them. */
const MAX_SCHEMAS = 500;
const MAX_KEYWORDS = 5000;

/**
 * Puts what `$ref` points to in its place, since not every provider follows references. Inside
 * itself a schema becomes "anything". Throws if it grows too large or points nowhere, or if `assertUsable` does for a part.
 */
export function inlineReferences(
  root: JsonObject,
  assertUsable: (schema: JsonObject) => void = () => undefined,
): JsonObject {
  let schemas = 0;
  let keywords = 0;
  const { excess } = measureJson(root, SCHEMA_LIMITS);
  if (excess) throw new Error(`it ${excess}`);

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
