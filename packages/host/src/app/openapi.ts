import { ModulesContainer } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';
import type { Route } from '@sibyl/plugin-kit';
import {
  ACCESS_KEY_ROUTE,
  OWN_KEY_ROUTE,
  ROUTE_DESCRIPTION,
  ROUTE_ERROR_FORMAT,
  type RouteDescription,
  WORK_ROUTE,
} from '@sibyl/plugin-kit/host';
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
import { PUBLIC_ROUTE } from '../http/ucan-guard.js';
import type { Services } from './services.js';

/** Describes every route of the running host, plugin routes included. */
export function createApiDocument(
  nest: NestExpressApplication,
  { oracle, facts, publicRoutes }: Services,
): OpenAPIObject {
  const components = new SchemaComponents();
  const document = SwaggerModule.createDocument(nest, buildHead(oracle, facts), {
    standardSchemaConverter: (schema, { schemaType }) => components.convert(schema, schemaType),
    operationIdFactory,
  });
  components.add(ErrorBody, 'output');
  const routes = readRouteFacts(nest);
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const { isPublic = false, ...route } = routes.get(operation.operationId) ?? {};
      // OpenAPI writes `{id}` where the router writes `:id`.
      const pattern = path.replaceAll(/\{(\w+)\}/g, ':$1');
      const isOpen = isPublic || publicRoutes.includes(method.toUpperCase(), pattern);
      completeOperation(operation, { ...route, path, isPublic: isOpen }, components);
    }
  }
  const schemas = { ...document.components?.schemas, ...components.schemas };
  for (const operation of Object.values(document.paths).flatMap((path) => Object.values(path)))
    relaxBody(operation.requestBody, schemas);
  return { ...document, components: { ...document.components, schemas } } as OpenAPIObject;
}

/** A body whose schema has a default is optional. */
function relaxBody(body: RequestBody | undefined, schemas: Readonly<Record<string, object>>): void {
  const { $ref = '' } = body?.content?.['application/json']?.schema ?? {};
  const schema = schemas[$ref.replace('#/components/schemas/', '')] ?? {};
  if (body && 'default' in schema) body.required = false;
}

interface RequestBody {
  required?: boolean;
  readonly content?: Readonly<Record<string, { readonly schema?: { readonly $ref?: string } }>>;
}

function buildHead(oracle: OracleIdentity, { version }: HostFacts) {
  return new DocumentBuilder()
    .setOpenAPIVersion('3.1.0')
    .setTitle(oracle.name)
    .setVersion(version)
    .setDescription(
      `An oracle: an AI agent whose users sign with their own key. The audience of tokens is \`${oracle.did}\`.`,
    )
    .addSecurity('invocation', {
      type: 'http',
      scheme: 'bearer',
      description: `${requestHeaders.authorization}. Send X-Auth-Type: ucan with it.`,
    })
    .addSecurity('delegation', {
      type: 'apiKey',
      in: 'header',
      name: 'x-ucan-delegation',
      description: requestHeaders['x-ucan-delegation'],
    })
    .addSecurity('accessKey', {
      type: 'apiKey',
      in: 'header',
      name: 'x-api-key',
      description: requestHeaders['x-api-key'],
    })
    .build();
}

const operationIdFactory = (controller: string, method: string) =>
  `${controller.replace('Controller', '')}.${method}`;

/** Reads the decorators of each handler, by operation id. */
function readRouteFacts(nest: NestExpressApplication): Map<string | undefined, RouteFacts> {
  const facts = new Map<string | undefined, RouteFacts>();
  for (const module of nest.get(ModulesContainer).values()) {
    for (const { metatype } of module.controllers.values()) {
      if (typeof metatype !== 'function') continue;
      for (const method of Object.getOwnPropertyNames(metatype.prototype)) {
        const handler = metatype.prototype[method];
        const isPublic = [handler, metatype].some((on) => Reflect.getMetadata(PUBLIC_ROUTE, on));
        const description = Reflect.getMetadata(ROUTE_DESCRIPTION, handler);
        const acceptsKeys = Reflect.getMetadata(ACCESS_KEY_ROUTE, handler) === true;
        const needsOwnKey = Reflect.getMetadata(OWN_KEY_ROUTE, handler);
        const startsWork = Reflect.getMetadata(WORK_ROUTE, handler) !== undefined;
        const hasOwnErrors = Reflect.getMetadata(ROUTE_ERROR_FORMAT, handler) !== undefined;
        const access = { isPublic, acceptsKeys, needsOwnKey, startsWork };
        const route = { ...access, hasOwnErrors, description };
        facts.set(operationIdFactory(metatype.name, method), route);
      }
    }
  }
  return facts;
}

type Operation = NonNullable<OpenAPIObject['paths'][string]['get']>;
type Response = Exclude<Operation['responses'][string], undefined | { $ref: string }>;

/** The decorators of a route. */
interface RouteFacts {
  readonly isPublic?: boolean;
  readonly acceptsKeys?: boolean;
  /** Whether a delegation is not enough; a function decides by the body. */
  readonly needsOwnKey?: Route['needsOwnKey'];
  /** Whether it is refused while the host has no time for it. */
  readonly startsWork?: boolean;
  /** Whether its errors have the form of another protocol. */
  readonly hasOwnErrors?: boolean;
  readonly description?: RouteDescription | undefined;
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

const listAccessErrors = ({
  isPublic,
  acceptsKeys,
  needsOwnKey,
  startsWork,
}: RouteFacts): readonly ErrorCode[] => [
  ...(startsWork ? (['host_busy'] as const) : []),
  ...(isPublic ? [] : PROTECTED),
  ...(needsOwnKey ? (['own_key_required'] as const) : []),
  ...(acceptsKeys ? (['invalid_access_key'] as const) : []),
];

const CALLER_HEADERS = ['x-auth-type', 'x-ucan-delegation', 'x-request-id'] as const;

const readsInput = ({ requestBody, parameters = [] }: Operation): boolean =>
  requestBody !== undefined || parameters.length > 0;

/** Adds what all routes of a kind have in common, and the description of the handler. */
function completeOperation(
  operation: Operation,
  {
    path,
    isPublic = false,
    acceptsKeys = false,
    needsOwnKey,
    startsWork = false,
    hasOwnErrors,
    description,
  }: RouteFacts & { readonly path: string },
  components: SchemaComponents,
): void {
  const ownHeaders = description?.headers ?? {};
  const hasInput = readsInput(operation) || Object.keys(ownHeaders).length > 0;
  operation.tags = [toTag(path)];
  operation.security = isPublic ? [] : listSchemes({ acceptsKeys, needsOwnKey });
  addHeaders(operation, isPublic ? ['x-request-id'] : CALLER_HEADERS, ownHeaders, components);
  addPathParameters(operation, path);
  if (description) addReply(operation, description, components);
  const groups = [
    description?.errors ?? [],
    hasInput ? WITH_INPUT : [],
    operation.requestBody === undefined ? [] : WITH_BODY,
    listAccessErrors({ isPublic, acceptsKeys, needsOwnKey, startsWork }),
    ALWAYS,
  ];
  const content = hasOwnErrors ? {} : ERROR_CONTENT;
  for (const code of new Set(groups.flat())) addError(operation, code, content);
  if (description?.bodyTypes) operation.requestBody = describeBytes(description.bodyTypes);
  addResponseHeaders(operation);
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
const listSchemes = ({ acceptsKeys, needsOwnKey }: RouteFacts) =>
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

function addResponseHeaders(operation: Operation): void {
  for (const response of Object.values(operation.responses) as Response[])
    response.headers = { ...response.headers, ...responseHeaders };
}

function addHeaders(
  operation: Operation,
  common: readonly (keyof typeof requestHeaders)[],
  own: NonNullable<RouteDescription['headers']>,
  components: SchemaComponents,
): void {
  const meanings = {
    ...Object.fromEntries(common.map((name) => [name, requestHeaders[name]])),
    ...own,
  };
  const parameters = Object.entries(meanings).map(([name, meaning]) => ({
    name,
    in: 'header' as const,
    required: typeof meaning !== 'string' && meaning.isRequired === true,
    ...(typeof meaning === 'string'
      ? { description: meaning, schema: { type: 'string' as const } }
      : { description: meaning.meaning, schema: components.add(meaning.schema, 'input') }),
  }));
  operation.parameters = [...(operation.parameters ?? []), ...parameters];
}

/** Nest declares only the parameters that a handler reads by name, so wildcards are missing. */
function addPathParameters(operation: Operation, path: string): void {
  const declared = new Set(
    (operation.parameters ?? []).flatMap((one) =>
      'in' in one && one.in === 'path' ? one.name : [],
    ),
  );
  const missing = [...path.matchAll(/\{(\w+)\}/g)].flatMap(([, name = '']) =>
    declared.has(name)
      ? []
      : { name, in: 'path' as const, required: true, schema: { type: 'string' as const } },
  );
  operation.parameters = [...missing, ...(operation.parameters ?? [])];
}

function addReply(
  operation: Operation,
  { summary, reply, status = 200, streams, mediaTypes = [], otherReplies = {} }: RouteDescription,
  components: SchemaComponents,
): void {
  operation.summary = summary;
  operation.responses = {
    [status]: {
      description: 'Success',
      content: {
        ...(reply && { 'application/json': { schema: components.add(reply, 'output') } }),
        ...(streams && { 'text/event-stream': { schema: streamEvent } }),
        ...Object.fromEntries(mediaTypes.map((type) => [type, {}])),
      },
      ...(streams && { headers: { 'X-Run-Id': header('Id of the run, for GET /runs/{runId}') } }),
    },
  };
  for (const [code, { when, reply: body }] of Object.entries(otherReplies))
    operation.responses[code] = {
      description: when,
      ...(body && { content: { 'application/json': { schema: components.add(body, 'output') } } }),
    };
}

const ERROR_CONTENT = {
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
};

function addError(
  operation: Operation,
  code: ErrorCode,
  content: Partial<typeof ERROR_CONTENT>,
): void {
  const [status, text] = errorCatalog[code];
  const known = operation.responses[status] as Response | undefined;
  const line = `\`${code}\`: ${text}`;
  operation.responses[status] = {
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

const header = (description: string) => ({ description, schema: { type: 'string' as const } });

const responseHeaders = { 'X-Request-Id': header('Correlation id of this request') };

const rateLimitHeaders = {
  'Retry-After': header('Seconds to wait'),
  'RateLimit-Limit': header('Requests per minute'),
  'RateLimit-Remaining': header('Requests left'),
  'RateLimit-Reset': header('Seconds until the limit is fully available again'),
};

type JsonSchema = Readonly<Record<string, unknown>>;

/** Collects the schemas that have an id, so that the document contains each once. */
class SchemaComponents {
  readonly schemas: Record<string, JsonSchema> = {};

  /** A schema with an id becomes a component and a reference to it. */
  convert(schema: unknown, io: 'input' | 'output') {
    if (!(schema instanceof z.ZodType)) return undefined;
    const {
      $schema: _,
      $defs: components = {},
      ...inline
    } = z.toJSONSchema(schema, {
      io,
      override: limitTuple,
    });
    return { schema: inline, components };
  }

  /** Adds the components of a schema; returns a reference to it. */
  add(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
    const converted = this.convert(schema, io);
    for (const [name, component] of Object.entries(converted?.components ?? {}))
      this.schemas[name] = withDocumentRefs(component);
    return withDocumentRefs(converted?.schema ?? {});
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
