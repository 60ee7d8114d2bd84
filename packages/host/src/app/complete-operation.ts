import type { OpenAPIObject } from '@nestjs/swagger';
import { type ErrorCode, errorCatalog, requestHeaders } from '@sibyl/protocol';
import { PUBLIC_EXTENSION, type PublicRoutes } from '../auth/public-routes.js';
import { STREAM_EXTENSION } from '../transport/api-reply.js';

type Operation = NonNullable<OpenAPIObject['paths'][string]['get']>;
type Response = Exclude<Operation['responses'][string], undefined | { $ref: string }>;

interface OperationPlace {
  readonly path: string;
  readonly method: string;
  readonly publicRoutes: PublicRoutes;
}

const ALWAYS: readonly ErrorCode[] = ['rate_limited', 'headers_too_large', 'internal_error'];
const WITH_INPUT: readonly ErrorCode[] = ['validation_failed'];
const WITH_BODY: readonly ErrorCode[] = [
  'invalid_json',
  'body_too_large',
  'unsupported_media_type',
];
const PROTECTED: readonly ErrorCode[] = [
  'missing_authentication',
  'invalid_invocation',
  'store_unavailable',
];

const CALLER_HEADERS = ['x-auth-type', 'x-ucan-delegation', 'x-request-id'] as const;

/** Adds what every route of its kind has in common: security, headers, failures. */
export function completeOperation(operation: Operation, place: OperationPlace): void {
  const isPublic = PUBLIC_EXTENSION in operation || isOpened(place);
  operation.security = isPublic ? [] : [{ invocation: [] }, { delegation: [] }];
  operation.parameters ??= [];
  for (const name of isPublic ? (['x-request-id'] as const) : CALLER_HEADERS)
    operation.parameters.push(headerParameter(name));
  if (STREAM_EXTENSION in operation) addStream(operation);
  for (const code of commonErrors(operation, isPublic)) addError(operation, code);
  for (const response of Object.values(operation.responses) as Response[])
    response.headers = { ...response.headers, ...responseHeaders };
}

/** OpenAPI writes `{id}` where the router writes `:id`. */
function isOpened({ path, method, publicRoutes }: OperationPlace): boolean {
  const pattern = path.replaceAll(/\{(\w+)\}/g, ':$1');
  return publicRoutes.includes(method.toUpperCase(), pattern);
}

function commonErrors(operation: Operation, isPublic: boolean): ErrorCode[] {
  const hasInput = operation.requestBody !== undefined || (operation.parameters ?? []).length > 0;
  return [
    ...(hasInput ? WITH_INPUT : []),
    ...(operation.requestBody === undefined ? [] : WITH_BODY),
    ...(isPublic ? [] : PROTECTED),
    ...ALWAYS,
  ];
}

/** The frames are those of contract B4; OpenAPI has no words for a stream of them. */
function addStream(operation: Operation): void {
  const reply = (operation.responses[200] ?? { description: 'Success' }) as Response;
  operation.responses[200] = {
    ...reply,
    content: { ...reply.content, 'text/event-stream': { schema: { type: 'string' } } },
    headers: { ...reply.headers, 'X-Run-Id': header('The run, to join it again at /runs/{runId}') },
  };
}

function addError(operation: Operation, code: ErrorCode): void {
  const [status, text] = errorCatalog[code];
  const known = operation.responses[status] as Response | undefined;
  const line = `\`${code}\`: ${text}`;
  if (known?.description.includes(line)) return;
  operation.responses[status] = {
    ...known,
    description: known ? `${known.description}\n\n${line}` : line,
    content: {
      'application/json': { schema: { $ref: '#/components/schemas/Error' } },
    },
    ...(status === 429 && { headers: rateLimitHeaders }),
  };
}

const headerParameter = (name: keyof typeof requestHeaders) => ({
  name,
  in: 'header' as const,
  required: false,
  description: requestHeaders[name],
  schema: { type: 'string' as const },
});

const header = (description: string) => ({ description, schema: { type: 'string' as const } });

const responseHeaders = { 'X-Request-Id': header('Correlation id of this request') };

const rateLimitHeaders = {
  'Retry-After': header('Seconds to wait'),
  'RateLimit-Limit': header('Requests a minute'),
  'RateLimit-Remaining': header('Requests left'),
  'RateLimit-Reset': header('Seconds until the allowance is whole again'),
};
