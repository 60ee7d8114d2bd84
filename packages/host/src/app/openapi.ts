import type { NestExpressApplication } from '@nestjs/platform-express';
import type { RouteDescription } from '@sibyl/plugin-kit/host';
import {
  ErrorBody,
  type ErrorCode,
  errorCatalog,
  requestHeaders,
  runFrames,
} from '@sibyl/protocol';
import { z } from 'zod';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { HostFacts } from '../http/discovery.controller.js';
import { type DescribedHandler, listHandlers } from './described-handlers.js';
import type { Services } from './services.js';

/** Describes every route of the running host, plugin routes included. */
export function createApiDocument(
  nest: NestExpressApplication,
  { oracle, facts, publicRoutes }: Pick<Services, 'oracle' | 'facts' | 'publicRoutes'>,
) {
  const components = new SchemaComponents();
  components.add(ErrorBody, 'output');
  const paths: Record<string, Record<string, Operation>> = {};
  for (const handler of listHandlers(nest)) {
    const { method, pattern } = handler;
    const isPublic = handler.isPublic || publicRoutes.includes(method.toUpperCase(), pattern);
    // OpenAPI writes `{id}` where the router writes `:id` or `*path`.
    const path = pattern.replaceAll(/[:*](\w+)/g, '{$1}');
    const operations = paths[path] ?? {};
    operations[method] = describeOperation({ ...handler, isPublic, path }, components);
    paths[path] = operations;
  }
  return {
    openapi: '3.1.0',
    info: describeOracle(oracle, facts),
    paths,
    components: { securitySchemes, schemas: components.schemas },
  };
}

const describeOracle = ({ name, did }: OracleIdentity, { version }: HostFacts) => ({
  title: name,
  version,
  description: `An oracle: an AI agent whose users sign with their own key. The audience of tokens is \`${did}\`.`,
});

const securitySchemes = {
  invocation: {
    type: 'http',
    scheme: 'bearer',
    description: `${requestHeaders.authorization}. Send X-Auth-Type: ucan with it.`,
  },
  delegation: {
    type: 'apiKey',
    in: 'header',
    name: 'x-ucan-delegation',
    description: requestHeaders['x-ucan-delegation'],
  },
  accessKey: {
    type: 'apiKey',
    in: 'header',
    name: 'x-api-key',
    description: requestHeaders['x-api-key'],
  },
};

interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly description?: string;
  readonly schema: JsonSchema;
}

interface Response {
  readonly description: string;
  readonly content?: object;
  readonly headers?: object;
}

interface Operation {
  readonly operationId: string;
  readonly summary?: string;
  readonly tags: readonly string[];
  readonly security: readonly object[];
  readonly parameters: readonly Parameter[];
  readonly requestBody?: object;
  readonly responses: Readonly<Record<string, Response>>;
}

const ALWAYS: readonly ErrorCode[] = ['rate_limited', 'headers_too_large', 'internal_error'];
const WITH_INPUT: readonly ErrorCode[] = ['validation_failed'];
const WITH_BODY: readonly ErrorCode[] = [
  'invalid_json',
  'body_too_large',
  'unsupported_media_type',
  'request_timeout',
  'too_many_bodies',
  'bodies_too_large',
];
const PROTECTED: readonly ErrorCode[] = [
  'missing_authentication',
  'invalid_invocation',
  'caller_not_allowed',
  'caller_blocked',
  'store_unavailable',
  'verification_busy',
];

type AccessFacts = Pick<
  DescribedHandler,
  'isPublic' | 'acceptsKeys' | 'needsOwnKey' | 'startsWork'
>;

const listAccessErrors = ({
  isPublic,
  acceptsKeys,
  needsOwnKey,
  startsWork,
}: AccessFacts): readonly ErrorCode[] => [
  ...(startsWork ? (['host_busy'] as const) : []),
  ...(isPublic ? [] : PROTECTED),
  ...(needsOwnKey ? (['own_key_required'] as const) : []),
  ...(acceptsKeys ? (['invalid_access_key'] as const) : []),
];

const CALLER_HEADERS = ['x-auth-type', 'x-ucan-delegation', 'x-request-id'] as const;

/** What all routes of a kind have in common, and what the handler says. */
function describeOperation(
  handler: DescribedHandler & { readonly path: string },
  components: SchemaComponents,
): Operation {
  const { operationId, path, isPublic, description } = handler;
  const requestBody = describeBody(handler, components);
  const ownHeaders = description?.headers ?? {};
  const codes = new Set<ErrorCode>([
    ...(description?.errors ?? []),
    ...(handler.checksInput || Object.keys(ownHeaders).length > 0 ? WITH_INPUT : []),
    ...(handler.body ? WITH_BODY : []),
    ...listAccessErrors(handler),
    ...ALWAYS,
  ]);
  const common = isPublic ? (['x-request-id'] as const) : CALLER_HEADERS;
  return {
    operationId,
    ...(description && { summary: description.summary }),
    tags: [toTag(path)],
    security: isPublic ? [] : listSchemes(handler),
    parameters: [
      ...listPathParameters(path, components.listProperties(handler.params)),
      ...components.listProperties(handler.query).map(toQueryParameter),
      ...listHeaders({ common, own: ownHeaders, components }),
    ],
    ...(requestBody && { requestBody }),
    responses: describeResponses(handler, codes, components),
  };
}

function describeBody(
  { body, description }: DescribedHandler,
  components: SchemaComponents,
): object | undefined {
  if (description?.bodyTypes) return describeBytes(description.bodyTypes);
  if (!body) return undefined;
  const schema = components.add(body, 'input');
  // A body whose schema has a default is optional.
  const required = !('default' in components.resolve(schema));
  return { required, content: { 'application/json': { schema } } };
}

const BYTES = { type: 'string' as const, format: 'binary' };

/** A body that is a file, or a form with one. */
const describeBytes = (types: readonly string[]) => ({
  required: true,
  content: Object.fromEntries(
    types.map((type) => [
      type,
      {
        schema: type.startsWith('multipart/')
          ? { type: 'object' as const, properties: { file: BYTES }, required: ['file'] }
          : BYTES,
      },
    ]),
  ),
});

const listSchemes = ({ acceptsKeys, needsOwnKey }: AccessFacts) =>
  [
    'invocation',
    ...(needsOwnKey === true ? [] : ['delegation']),
    ...(acceptsKeys ? ['accessKey'] : []),
  ].map((scheme) => ({ [scheme]: [] }));

/** Routes are grouped by the first part of their path. */
function toTag(path: string): string {
  const [, noun = ''] = path.split('/');
  return /^(health|\..*)?$/.test(noun) ? 'service' : noun;
}

interface Headers {
  readonly common: readonly (keyof typeof requestHeaders)[];
  readonly own: NonNullable<RouteDescription['headers']>;
  readonly components: SchemaComponents;
}

function listHeaders({ common, own, components }: Headers): Parameter[] {
  const meanings = {
    ...Object.fromEntries(common.map((name) => [name, requestHeaders[name]])),
    ...own,
  };
  return Object.entries(meanings).map(([name, meaning]) => ({
    name,
    in: 'header',
    required: typeof meaning !== 'string' && meaning.isRequired === true,
    ...(typeof meaning === 'string'
      ? { description: meaning, schema: STRING }
      : { description: meaning.meaning, schema: components.add(meaning.schema, 'input') }),
  }));
}

const listPathParameters = (path: string, described: readonly Property[]): Parameter[] =>
  [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: described.find((property) => property.name === name)?.schema ?? STRING,
  }));

const toQueryParameter = ({ name, isRequired, schema }: Property): Parameter => ({
  name,
  in: 'query',
  required: isRequired,
  ...(typeof schema.description === 'string' && { description: schema.description }),
  schema,
});

function describeResponses(
  { hasOwnErrors, description }: DescribedHandler,
  codes: ReadonlySet<ErrorCode>,
  components: SchemaComponents,
): Operation['responses'] {
  const responses = description ? describeReplies(description, components) : {};
  const content = hasOwnErrors ? {} : ERROR_CONTENT;
  for (const code of codes) addError(responses, code, content);
  for (const [status, { headers, ...response }] of Object.entries(responses))
    responses[status] = { ...response, headers: { ...headers, ...responseHeaders } };
  return responses;
}

function describeReplies(
  { reply, status = 200, streams, mediaTypes = [], otherReplies = {} }: RouteDescription,
  components: SchemaComponents,
): Record<string, Response> {
  const toContent = (schema: z.ZodType) => ({
    'application/json': { schema: components.add(schema, 'output') },
  });
  const success = {
    description: 'Success',
    content: {
      ...(reply && toContent(reply)),
      ...(streams && { 'text/event-stream': { schema: streamEvent } }),
      ...Object.fromEntries(mediaTypes.map((type) => [type, {}])),
    },
    ...(streams && { headers: { 'X-Run-Id': header('Id of the run, for GET /runs/{runId}') } }),
  };
  const others = Object.entries(otherReplies).map(([code, { when, reply: body }]) => [
    code,
    { description: when, ...(body && { content: toContent(body) }) },
  ]);
  return { [status]: success, ...Object.fromEntries(others) };
}

const ERROR_CONTENT = {
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
};

function addError(
  responses: Record<string, Response>,
  code: ErrorCode,
  content: Partial<typeof ERROR_CONTENT>,
): void {
  const [status, text] = errorCatalog[code];
  const known = responses[status];
  const line = `\`${code}\`: ${text}`;
  responses[status] = {
    ...known,
    description: known ? `${known.description}\n\n${line}` : line,
    ...content,
    ...(status === 429 && { headers: rateLimitHeaders }),
    ...(status === 503 && { headers: { 'Retry-After': rateLimitHeaders['Retry-After'] } }),
  };
}

/** One event: OpenAPI 3.1 does not describe streams, and tools take the schema for that of each event. */
const streamEvent = {
  type: 'object' as const,
  description: 'Each event of the stream; docs/events.md describes the data of each kind',
  properties: {
    event: { type: 'string' as const, enum: Object.keys(runFrames) },
    id: { type: 'string' as const, pattern: '^[1-9][0-9]*$' },
    data: { type: 'string' as const, contentMediaType: 'application/json' },
  },
  required: ['event', 'id', 'data'],
};

const STRING = { type: 'string' };

const header = (description: string) => ({ description, schema: STRING });

const responseHeaders = { 'X-Request-Id': header('Correlation id of this request') };

const rateLimitHeaders = {
  'Retry-After': header('Seconds to wait'),
  'RateLimit-Limit': header('Requests per minute'),
  'RateLimit-Remaining': header('Requests left'),
  'RateLimit-Reset': header('Seconds until the limit is fully available again'),
};

type JsonSchema = Readonly<Record<string, unknown>>;

interface Property {
  readonly name: string;
  readonly isRequired: boolean;
  readonly schema: JsonSchema;
}

/** Collects the schemas that have an id, so that the document contains each once. */
class SchemaComponents {
  readonly schemas: Record<string, JsonSchema> = {};

  /** The schema itself, if it is a reference to a component. */
  resolve(schema: JsonSchema): JsonSchema {
    const { $ref } = schema;
    if (typeof $ref !== 'string') return schema;
    return this.schemas[$ref.replace('#/components/schemas/', '')] ?? {};
  }

  /** The members of an object in a request. */
  listProperties(schema: z.ZodType | undefined): readonly Property[] {
    if (!schema) return [];
    const { properties = {}, required = [] } = this.resolve(this.add(schema, 'input')) as {
      readonly properties?: Readonly<Record<string, JsonSchema>>;
      readonly required?: readonly string[];
    };
    return Object.entries(properties).map(([name, property]) => {
      return { name, isRequired: required.includes(name), schema: property };
    });
  }

  /** A schema with an id becomes a component and a reference to it; adds the components in others. */
  add(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
    const {
      $schema: _,
      $defs: components = {},
      ...inline
    } = z.toJSONSchema(schema, { io, override: limitTuple });
    for (const [name, component] of Object.entries(components))
      this.schemas[name] = withDocumentRefs(component);
    return withDocumentRefs(inline);
  }
}

/** Says that a tuple has no further items by its length: some generators of clients do not know `items: false`. */
function limitTuple({ jsonSchema }: { readonly jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  const { prefixItems, items } = jsonSchema;
  if (items !== false || !Array.isArray(prefixItems)) return;
  delete jsonSchema.items;
  jsonSchema.minItems = prefixItems.length;
  jsonSchema.maxItems = prefixItems.length;
}

/** JSON Schema has its definitions in the schema, OpenAPI in the components of the document. */
function withDocumentRefs(schema: object): JsonSchema {
  return JSON.parse(JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/'));
}
