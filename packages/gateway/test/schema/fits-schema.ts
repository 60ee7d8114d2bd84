type JsonSchema = Readonly<Record<string, unknown>>;

/** Finds the first place where a value does not match a JSON schema of an OpenAPI document. */
export function misfit(
  value: unknown,
  schema: JsonSchema,
  document: JsonSchema,
  at = '$',
): string | undefined {
  if (typeof schema.$ref === 'string')
    return misfit(value, resolve(schema.$ref, document), document, at);
  if (Array.isArray(schema.anyOf)) {
    const fits = schema.anyOf.some(
      (one) => misfit(value, one as JsonSchema, document, at) === undefined,
    );
    return fits ? undefined : `${at} fits none of its forms`;
  }
  // A number instead of a name is an enum value that the schema does not declare.
  if (Array.isArray(schema.enum))
    return schema.enum.includes(value) || Number.isInteger(value)
      ? undefined
      : `${at} is none of its names`;
  const types = [schema.type ?? toType(value)].flat();
  const isWhole = types.includes('integer') && Number.isInteger(value);
  if (!types.includes(toType(value)) && !isWhole) return `${at} is no ${types.join(' or ')}`;
  return misfitOfKind(value, schema, document, at);
}

function misfitOfKind(value: unknown, schema: JsonSchema, document: JsonSchema, at: string) {
  if (typeof value === 'string' && typeof schema.pattern === 'string')
    return new RegExp(schema.pattern).test(value)
      ? undefined
      : `${at} is not like ${schema.pattern}`;
  if (Array.isArray(value)) return misfitOfItems(value, schema, document, at);
  if (toType(value) === 'object') return misfitOfMembers(value as JsonSchema, schema, document, at);
  return undefined;
}

function misfitOfItems(items: unknown[], schema: JsonSchema, document: JsonSchema, at: string) {
  return first(
    items.map(
      (item, i) => () => misfit(item, (schema.items ?? {}) as JsonSchema, document, `${at}[${i}]`),
    ),
  );
}

function misfitOfMembers(value: JsonSchema, schema: JsonSchema, document: JsonSchema, at: string) {
  if (!schema.properties && !schema.additionalProperties) return undefined;
  const missing = ((schema.required as string[]) ?? []).find((name) => !(name in value));
  if (missing) return `${at}.${missing} is missing`;
  const properties = (schema.properties ?? {}) as Record<string, JsonSchema>;
  return first(
    Object.entries(value).map(([name, member]) => () => {
      const other = schema.additionalProperties;
      const memberSchema = properties[name] ?? (other === true ? {} : (other as JsonSchema));
      if (!memberSchema) return `${at}.${name} is not declared`;
      return misfit(member, memberSchema, document, `${at}.${name}`);
    }),
  );
}

function first(checks: (() => string | undefined)[]): string | undefined {
  for (const check of checks) {
    const found = check();
    if (found) return found;
  }
  return undefined;
}

function toType(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

export function resolve(reference: string, document: JsonSchema): JsonSchema {
  const found = reference
    .split('/')
    .slice(1)
    .reduce<unknown>((part, name) => (part as JsonSchema | undefined)?.[name], document);
  if (!found) throw new Error(`${reference} leads nowhere`);
  return found as JsonSchema;
}
