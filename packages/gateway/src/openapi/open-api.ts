import type { Route } from '../routes/route.js';
import { JsonSchemas } from './json-schemas.js';
import { pathParameters, queryParameters } from './parameters.js';

/** What the document says of itself. */
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

/** As far as heights are read: 15 digits. */
const MAX_HEIGHT = 999_999_999_999_999;

const HEIGHT_HEADER = {
  name: 'x-cosmos-block-height',
  in: 'header',
  description: 'The height to ask at, up to the latest one; 0, or none, means the latest.',
  schema: { type: 'integer', minimum: 0, maximum: MAX_HEIGHT },
};

/** The routes that can be asked, as an OpenAPI 3.1 document. */
export function openApiDocument(routes: readonly Route[], info: ApiInfo): Record<string, unknown> {
  const schemas = new JsonSchemas();
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes.filter((route) => route.isServed && !route.isWrite)) {
    const path = route.template.replace(/\{([^{}=]+)=[^{}]+\}/g, '{$1}');
    paths[path] ??= {};
    // Of two routes with one path the first is the one that answers.
    paths[path][route.httpMethod.toLowerCase()] ??= operationOf(route, schemas);
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

function operationOf(route: Route, schemas: JsonSchemas): Record<string, unknown> {
  const [, service = '', method = ''] = route.grpcMethod.split('/');
  return {
    operationId: `${service}.${method}`,
    tags: [service.split('.').slice(0, -1).join('.')],
    summary: route.summary,
    description: `gRPC: \`${route.grpcMethod}\``,
    ...(route.isDeprecated && { deprecated: true }),
    parameters: [
      ...pathParameters(route, schemas),
      ...queryParameters(route, schemas),
      { $ref: '#/components/parameters/height' },
    ],
    ...(route.httpMethod !== 'GET' && {
      requestBody: jsonContent(schemas.message(route.request, 'input')),
    }),
    responses: {
      200: {
        description: 'The reply of the chain.',
        ...jsonContent(schemas.message(route.reply, 'reply')),
      },
      default: {
        description: 'A refusal, of the gateway or of the chain.',
        ...jsonContent({ $ref: '#/components/schemas/Error' }),
      },
    },
  };
}

function jsonContent(schema: unknown) {
  return { content: { 'application/json': { schema } } };
}
