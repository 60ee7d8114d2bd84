import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { findField, findFieldPath } from '../binding/message-draft.js';
import type { Route } from '../routes/route.js';
import { getMessageForm } from '../schema/options.js';
import { JsonSchemas } from './json-schemas.js';

/** The `info` of the document. */
export interface ApiInfo {
  readonly title: string;
  readonly version: string;
}

const ERROR_SCHEMA = {
  type: 'object',
  required: ['code', 'message', 'details'],
  properties: {
    code: { type: 'integer', description: 'The gRPC code.' },
    message: { type: 'string' },
    details: { type: 'array', items: {} },
  },
};

/** Heights have up to 15 digits. */
const MAX_HEIGHT = 999_999_999_999_999;

const HEIGHT_HEADER = {
  name: 'x-cosmos-block-height',
  in: 'header',
  description: 'The height of the state to query; 0 or unset for the latest.',
  schema: { type: 'integer', minimum: 0, maximum: MAX_HEIGHT },
};

/** Builds an OpenAPI 3.1 document of the served routes. */
export function openApiDocument(routes: readonly Route[], info: ApiInfo) {
  const schemas = new JsonSchemas();
  const paths: Record<string, Record<string, unknown>> = {};
  const ids = new OperationIds();
  for (const route of routes.filter((route) => route.isServed && !route.isWrite)) {
    const path = route.template.replace(/\{([^{}=]+)=[^{}]+\}/g, '{$1}');
    paths[path] ??= {};
    // Of two routes with the same path, the first one is served.
    paths[path][route.httpMethod.toLowerCase()] ??= {
      operationId: ids.create(route),
      ...buildOperation(route, schemas),
    };
  }
  return {
    openapi: '3.1.0',
    info,
    paths,
    components: {
      schemas: { ...schemas.definitions(), Error: ERROR_SCHEMA },
      parameters: { height: HEIGHT_HEADER },
    },
  };
}

function buildOperation(route: Route, schemas: JsonSchemas): Record<string, unknown> {
  const [, service = ''] = route.grpcMethod.split('/');
  const body = bodySchema(route, schemas);
  return {
    tags: [service.split('.').slice(0, -1).join('.')],
    summary: route.summary,
    description: `gRPC: \`${route.grpcMethod}\``,
    ...(route.isDeprecated && { deprecated: true }),
    parameters: [
      ...pathParameters(route, schemas),
      ...queryParameters(route, schemas),
      { $ref: '#/components/parameters/height' },
    ],
    ...(body && { requestBody: jsonContent(body) }),
    responses: {
      200: {
        description: 'The reply of the chain.',
        ...jsonContent(schemas.message(route.reply, 'reply')),
      },
      default: {
        description: 'An error of the gateway or the chain.',
        ...jsonContent({ $ref: '#/components/schemas/Error' }),
      },
    },
  };
}

/** Ids are unique, although a method may have several paths. */
class OperationIds {
  private readonly counts = new Map<string, number>();

  create({ grpcMethod }: Route): string {
    const id = grpcMethod.slice(1).replace('/', '.');
    const count = (this.counts.get(id) ?? 0) + 1;
    this.counts.set(id, count);
    return count === 1 ? id : `${id}.${count}`;
  }
}

/** The schema of the body: the whole request or one of its fields; undefined without a body. */
function bodySchema({ body, request }: Route, schemas: JsonSchemas) {
  if (body === '*') return schemas.message(request, 'input');
  const field = body === '' ? undefined : findField(request, body);
  return field && buildSchema(field, schemas);
}

function jsonContent(schema: unknown) {
  return { content: { 'application/json': { schema } } };
}

/** Maximum nesting of fields in query keys. */
const MAX_DEPTH = 4;
/** Fields of one request that are looked at: those of messages that contain each other multiply with every level. */
const MAX_FIELDS = 5000;

export function pathParameters(route: Route, schemas: JsonSchemas) {
  return route.path.variables.map((name) => {
    const field = findFieldPath(route.request, name)?.at(-1);
    return { name, in: 'path', required: true, schema: field ? buildSchema(field, schemas) : {} };
  });
}

export function queryParameters(route: Route, schemas: JsonSchemas) {
  return new LeafLister()
    .list(route.request)
    .filter(({ name }) => route.takesQueryKey(name))
    .map(({ name, field }) => ({
      name,
      in: 'query',
      ...(field.deprecated && { deprecated: true }),
      schema: buildSchema(field, schemas),
    }));
}

function buildSchema(field: DescField, schemas: JsonSchemas) {
  const value = schemas.value(field, 'input');
  return field.fieldKind === 'list' ? { type: 'array', items: value } : value;
}

interface Leaf {
  readonly name: string;
  readonly field: DescField;
}

/** Lists the fields that query keys can set, up to a limit. */
class LeafLister {
  private left = MAX_FIELDS;

  list(type: DescMessage, prefix = '', depth = 0): Leaf[] {
    if (depth > MAX_DEPTH) return [];
    return type.fields.flatMap((field) => this.listField(field, prefix, depth));
  }

  private listField(field: DescField, prefix: string, depth: number): Leaf[] {
    this.left -= 1;
    if (this.left < 0) return [];
    const name = `${prefix}${field.name}`;
    const nested = findNested(field);
    if (nested) return this.list(nested, `${name}.`, depth + 1);
    return isLeaf(field) ? [{ name, field }] : [];
  }
}

/** The message of a field, if keys name the fields of that message. */
function findNested({ fieldKind, message }: DescField): DescMessage | undefined {
  const isNested = fieldKind === 'message' && getMessageForm(message) === 'fields';
  return isNested ? message : undefined;
}

function isLeaf({ fieldKind, message }: DescField): boolean {
  if (!message) return fieldKind !== 'map';
  if (fieldKind !== 'message') return false;
  const form = getMessageForm(message);
  return form === 'timestamp' || form === 'duration' || message.fields.length === 1;
}
