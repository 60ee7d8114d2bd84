import { GrpcCode } from '@sibyl/grpc-client';
import { type ByteReservation, scanJson } from '@sibyl/server-kit';
import { z } from 'zod';
import { checkPermission } from '../auth/admission.js';
import { type Caller } from '../auth/gate.js';
import type { OnGone } from '../query/block-waiters.js';
import { badRequest, QueryError, toQueryError } from '../query/query-error.js';
import {
  extraCost,
  HEIGHT_HEADER,
  MIN_HEIGHT_HEADER,
  type QueryRequest,
  readMinHeight,
  readRequestedHeight,
  readTimeout,
} from '../query/query-parser.js';
import { HEIGHT_METADATA, parseHeight } from '../upstream/upstream.js';
import type { GatewayDeps } from './gateway-deps.js';
import { formatError, holdBytes, type RequestContext, readBody } from './request-context.js';

/** All results of one batch together. */
const MAX_REPLY_BYTES = 32 * 1024 * 1024;
const CONCURRENT_QUERIES = 10;
const MAX_MESSAGE_CHARACTERS = 1000;
/** A batch may take as long as this many queries, but not so long that its connection counts as idle. */
const LONGEST_QUERIES = 4;
const MAX_EXTRA_MS = 45_000;

const Target = z.string().regex(/^\/[^\s#]{0,8000}$/, { error: 'must be a path, such as /ixo/…' });

const Batch = z.strictObject({
  height: z.union([z.string(), z.number()]).transform(String).optional(),
  queries: z.array(z.union([Target, z.strictObject({ path: Target })])).min(1),
});
type Batch = z.infer<typeof Batch>;

const jsonContent = (schema: object) => ({ content: { 'application/json': { schema } } });

/** The operation in the OpenAPI document. */
export function describeBatch(limit: number) {
  const { $schema: _, ...body } = z.toJSONSchema(Batch, { io: 'input' });
  const results = { type: 'array', items: RESULT_SCHEMA };
  const properties = { height: { type: 'string' }, results };
  return {
    operationId: 'batch',
    tags: ['gateway'],
    summary: `Answers up to ${limit} queries at one height.`,
    parameters: [{ $ref: '#/components/parameters/height' }],
    requestBody: { required: true, ...jsonContent(body) },
    responses: {
      200: {
        description: 'The results, in the order of the queries.',
        ...jsonContent({ type: 'object', required: ['height', 'results'], properties }),
      },
      default: {
        description: 'An error of the gateway.',
        ...jsonContent({ $ref: '#/components/schemas/Error' }),
      },
    },
  };
}

const RESULT_SCHEMA = {
  type: 'object',
  required: ['status', 'body'],
  properties: {
    status: { type: 'integer' },
    body: { description: 'The reply of the chain or an error, as from a single query.' },
  },
};

/** Handles several queries at one height: that of the batch, or the latest. */
export async function serveBatch(
  context: RequestContext,
  caller: Caller,
  deps: GatewayDeps,
): Promise<void> {
  deps.admission.spend(caller, 1);
  const { queries, height: wanted } = await readBatch(context, deps);
  deps.admission.spend(caller, queries.length - 1);
  const endsAt = performance.now() + getLongestMs(deps.config.nodes.timeoutMs);
  const requested = readBatchHeight(wanted, context);
  await waitForMinHeight(context, caller, deps);
  await deps.blocks.confirm();
  const height = requested ?? expectLatest(deps.pool.latest);
  const targets = queries.map((query) => (typeof query === 'string' ? query : query.path));
  const request = targets.map((target) => toQueryRequest(target, height, context));
  const memory = deps.outgoing.open(context.callerKey);
  const running = new Set<() => void>();
  context.response.once('close', () => {
    for (const leave of running) leave();
  });
  try {
    const results = await answerAll(request, memory, (one) => {
      if (context.response.destroyed) throw clientLeft();
      const onGone = (leave: () => void) => void running.add(leave);
      return answerOne(one, { caller, endsAt, onGone }, deps);
    });
    if (context.response.destroyed) throw clientLeft();
    context.response.on('close', () => memory.release());
    sendResults(context, height, results);
  } catch (error) {
    memory.release();
    throw error;
  }
}

const getLongestMs = (timeoutMs: number) =>
  Math.min(LONGEST_QUERIES * timeoutMs, timeoutMs + MAX_EXTRA_MS);

/** Runs a few queries at a time; stops when the results exceed the size limit, or the memory of the caller. */
async function answerAll(
  request: readonly QueryRequest[],
  memory: ByteReservation,
  answer: (request: QueryRequest) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const rest = request.entries();
  let size = 0;
  let hasFailed = false;
  const answerRest = async () => {
    for (const [i, one] of rest) {
      const result = await answer(one);
      // The memory is released already.
      if (hasFailed) return;
      size += result.body.length;
      if (size > MAX_REPLY_BYTES) throw tooLarge();
      holdBytes(memory, size);
      results[i] = result;
    }
  };
  try {
    await Promise.all(Array.from({ length: CONCURRENT_QUERIES }, answerRest));
  } finally {
    hasFailed = true;
  }
  return results;
}

async function readBatch(
  context: RequestContext,
  { config, incoming }: GatewayDeps,
): Promise<Batch> {
  const limit = config.batchLimit;
  const body = await readBody(context, incoming);
  // Before parsing: each query has at most two values, plus a few for the batch.
  if (scanJson(body, { values: 2 * limit + 100 }).excess) throw tooManyQueries(limit);
  const { data, error } = Batch.safeParse(parse(body.toString()));
  if (data && data.queries.length > limit) throw tooManyQueries(limit);
  if (!error) return data;
  throw badRequest(z.prettifyError(error).replaceAll('\n', ' ').slice(0, MAX_MESSAGE_CHARACTERS));
}

const tooManyQueries = (limit: number) =>
  badRequest(`too many queries in one batch; ${limit} are allowed`);

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw badRequest('the body is not JSON');
  }
}

/** The height in the body, the query or the headers; throws if they conflict. */
function readBatchHeight(
  inBody: string | undefined,
  { request, query }: RequestContext,
): number | undefined {
  const given = [...query.getAll('height'), ...(inBody === undefined ? [] : [inBody])];
  return readRequestedHeight(request.headers, given);
}

/** Before the height of the batch is chosen: it must not be an older one. */
async function waitForMinHeight(
  { request: { headers }, response }: RequestContext,
  caller: Caller,
  { config, queryService }: GatewayDeps,
): Promise<void> {
  const minHeight = readMinHeight(headers);
  if (minHeight === undefined) return;
  const timeoutMs = readTimeout(headers, config.nodes.timeoutMs, config.compat);
  const onGone = (leave: () => void) => void response.on('close', leave);
  await queryService.waitForBlock({ minHeight, timeoutMs, caller, onGone });
}

function expectLatest(latest: number): number {
  if (latest > 0) return latest;
  throw new QueryError(GrpcCode.unavailable, 'no node has reported its height yet; see /health');
}

/** The headers of the batch apply to each query; the height is the batch's, and was waited for. */
function toQueryRequest(target: string, height: number, { request }: RequestContext): QueryRequest {
  const mark = target.indexOf('?');
  const { [HEIGHT_HEADER]: _, [MIN_HEIGHT_HEADER]: __, ...headers } = request.headers;
  return {
    method: 'GET',
    path: mark < 0 ? target : target.slice(0, mark),
    query: new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1)),
    headers: { ...headers, [HEIGHT_METADATA]: String(height) },
  };
}

interface Result {
  readonly status: number;
  readonly body: Buffer;
}

interface BatchCall {
  readonly caller: Caller;
  /** When the batch ends, in milliseconds of `performance.now()`. */
  readonly endsAt: number;
  readonly onGone: OnGone;
}

async function answerOne(
  request: QueryRequest,
  { caller, endsAt, onGone }: BatchCall,
  deps: GatewayDeps,
): Promise<Result> {
  const height = parseHeight(request.headers[HEIGHT_METADATA]);
  try {
    const query = await deps.queryParser.read(request, (route) => checkPermission(caller, route));
    deps.admission.spendExtra(caller, () => extraCost(query));
    const leftMs = endsAt - performance.now();
    if (leftMs <= 0) throw tookTooLong();
    const timeoutMs = Math.min(query.timeoutMs, leftMs);
    const { body } = await deps.queryService.answer({ ...query, timeoutMs }, caller, onGone);
    return { status: 200, body };
  } catch (error) {
    const queryError = toQueryError(error, { pool: deps.pool, height, compat: deps.config.compat });
    if (!queryError) throw error;
    return {
      status: queryError.status,
      body: Buffer.from(formatError(queryError)),
    };
  }
}

/** Bodies are JSON already. They are sent as they are: one copy of all of them would take as much memory again. */
function sendResults(context: RequestContext, height: number, results: readonly Result[]): void {
  const pieces = results.flatMap(({ status, body }, i) => {
    const start = i === 0 ? `{"height":"${height}","results":[` : '},';
    return [Buffer.from(`${start}{"status":${status},"body":`), body];
  });
  pieces.push(Buffer.from('}]}'));
  context.sendPieces(
    {
      'Content-Type': 'application/json',
      'Content-Length': pieces.reduce((sum, { length }) => sum + length, 0),
      'Cache-Control': 'no-store',
      'X-Block-Height': height,
    },
    pieces,
  );
}

const clientLeft = () => new QueryError(GrpcCode.cancelled, 'the client has disconnected');

const tookTooLong = () =>
  new QueryError(GrpcCode.deadlineExceeded, 'the batch took too long; send fewer queries');

function tooLarge(): QueryError {
  const text = `the results have more than ${MAX_REPLY_BYTES} bytes in total; send fewer queries`;
  return new QueryError(GrpcCode.resourceExhausted, text, { status: 413 });
}
