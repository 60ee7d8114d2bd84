import { z } from 'zod';

type JsonSchema = Readonly<Record<string, unknown>>;

/** Collects the schemas that have an id, so that the document says each once. */
export class SchemaComponents {
  readonly schemas: Record<string, JsonSchema> = {};

  /** A schema with an id becomes a component and a reference to it. */
  convert(schema: unknown, io: 'input' | 'output') {
    if (!(schema instanceof z.ZodType)) return undefined;
    const { $schema: _, $defs: components = {}, ...inline } = z.toJSONSchema(schema, { io });
    return { schema: inline, components };
  }

  /** Keeps the components of a schema and returns how to refer to it. */
  add(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
    const converted = this.convert(schema, io);
    for (const [name, component] of Object.entries(converted?.components ?? {}))
      this.schemas[name] = withDocumentRefs(component);
    return withDocumentRefs(converted?.schema ?? {});
  }
}

/** JSON Schema keeps its definitions beside it, OpenAPI under the document's components. */
function withDocumentRefs(schema: object): JsonSchema {
  return JSON.parse(JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/'));
}
