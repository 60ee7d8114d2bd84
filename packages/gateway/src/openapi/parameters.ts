import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { fieldPath } from '../binding/field-path.js';
import { messageForm } from '../descriptors/message-form.js';
import type { Route } from '../routes/route.js';
import type { JsonSchemas } from './json-schemas.js';

/** A request that nests deeper than this is not one that is asked by URL. */
const MAX_DEPTH = 4;

export function pathParameters(route: Route, schemas: JsonSchemas) {
  return route.path.variables.map((name) => {
    const field = fieldPath(route.request, name)?.at(-1);
    return { name, in: 'path', required: true, schema: field ? schemaOf(field, schemas) : {} };
  });
}

export function queryParameters(route: Route, schemas: JsonSchemas) {
  return leavesOf(route.request, '', 0)
    .filter(({ name }) => route.takesQueryKey(name))
    .map(({ name, field }) => ({
      name,
      in: 'query',
      ...(field.deprecated && { deprecated: true }),
      schema: schemaOf(field, schemas),
    }));
}

function schemaOf(field: DescField, schemas: JsonSchemas) {
  const value = schemas.value(field, 'input');
  return field.fieldKind === 'list' ? { type: 'array', items: value } : value;
}

interface Leaf {
  readonly name: string;
  readonly field: DescField;
}

/** All fields that a query key can set. */
function leavesOf(type: DescMessage, prefix: string, depth: number): Leaf[] {
  if (depth > MAX_DEPTH) return [];
  return type.fields.flatMap((field) => {
    const name = `${prefix}${field.name}`;
    if (!field.message) return field.fieldKind === 'map' ? [] : [{ name, field }];
    if (field.fieldKind !== 'message') return [];
    const form = messageForm(field.message);
    if (form === 'fields') return leavesOf(field.message, `${name}.`, depth + 1);
    const isText = form === 'timestamp' || form === 'duration' || field.message.fields.length === 1;
    return isText ? [{ name, field }] : [];
  });
}
