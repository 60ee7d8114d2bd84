import { z } from 'zod';
import { permit } from '../gating/admission.js';
import { type Caller } from '../gating/caller.js';
import { explainFault } from '../query/explain-fault.js';
import { badRequest, QueryFault } from '../query/query-fault.js';
import type { Asked } from '../query/questions.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { HEIGHT_METADATA, parseHeight } from '../upstream/height.js';
import type { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { readBody } from './read-body.js';
import { bodyOf } from './send-json.js';

/** All results of one batch together. */
const MAX_REPLY_BYTES = 32 * 1024 * 1024;

const Target = z.string().regex(/^\/[^\s#]{0,8000}$/, { error: 'must be a path, such as /ixo/…' });

const Batch = z.strictObject({
  height: z.union([z.string(), z.number()]).transform(String).optional(),
  queries: z.array(z.union([Target, z.strictObject({ path: Target })])).min(1),
});

/** Answers several queries at one height: that of the batch, or the latest for all of them. */
export async function serveBatch(
  exchange: Exchange,
  caller: Caller,
  parts: GatewayParts,
): Promise<void> {
  const { queries, height: wanted } = await readBatch(exchange, parts.config.batchLimit);
  parts.admission.spend(caller, queries.length);
  const height = heightOf(wanted, parts.pool.latest);
  const results = await Promise.all(
    queries.map((query) => {
      const target = typeof query === 'string' ? query : query.path;
      return answerOne(askedOf(target, height, exchange), caller, parts);
    }),
  );
  sendResults(exchange, height, results);
}

async function readBatch({ request }: Exchange, limit: number): Promise<z.infer<typeof Batch>> {
  const text = (await readBody(request)).toString();
  const { data, error } = Batch.safeParse(parse(text));
  if (error) throw badRequest(z.prettifyError(error).replaceAll('\n', ' '));
  if (data.queries.length <= limit) return data;
  throw badRequest(`${data.queries.length} queries in one batch, ${limit} are allowed`);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw badRequest('the body is not JSON');
  }
}

function heightOf(wanted: string | undefined, latest: number): number {
  const height = wanted === undefined ? latest : parseHeight(wanted);
  if (height === undefined) throw badRequest(`${wanted?.slice(0, 40)} is not a block height`);
  if (height > 0) return height;
  if (latest > 0) return latest;
  throw new QueryFault(GrpcCode.unavailable, 'no node has told its height yet; see /health');
}

/** Headers that speak of the whole batch count for each query; the height is the batch's. */
function askedOf(target: string, height: number, { request }: Exchange): Asked {
  const mark = target.indexOf('?');
  return {
    method: 'GET',
    path: mark < 0 ? target : target.slice(0, mark),
    query: new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1)),
    headers: { ...request.headers, [HEIGHT_METADATA]: String(height) },
  };
}

interface Result {
  readonly status: number;
  readonly body: Buffer;
}

async function answerOne(asked: Asked, caller: Caller, parts: GatewayParts): Promise<Result> {
  const height = parseHeight(asked.headers[HEIGHT_METADATA]);
  try {
    const question = await parts.questions.read(asked, (route) => permit(caller, route));
    const { body } = await parts.answers.answer(question);
    return { status: 200, body };
  } catch (fault) {
    const told = explainFault(fault, { pool: parts.pool, height, compat: parts.config.compat });
    if (!told) throw fault;
    return { status: told.status, body: Buffer.from(JSON.stringify(bodyOf(told))) };
  }
}

/** Bodies go in as they are: they are JSON already. */
function sendResults(exchange: Exchange, height: number, results: readonly Result[]): void {
  const size = results.reduce((sum, { body }) => sum + body.length, 0);
  if (size > MAX_REPLY_BYTES) {
    const text = `the results have ${size} bytes together, ${MAX_REPLY_BYTES} are allowed`;
    throw new QueryFault(GrpcCode.resourceExhausted, text, { status: 413 });
  }
  const pieces = results.flatMap(({ status, body }, i) => [
    Buffer.from(`${i > 0 ? ',' : ''}{"status":${status},"body":`),
    body,
    Buffer.from('}'),
  ]);
  const all = [Buffer.from(`{"height":"${height}","results":[`), ...pieces, Buffer.from(']}')];
  const body = Buffer.concat(all);
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': body.length,
    'Cache-Control': 'no-store',
    'X-Block-Height': height,
  };
  exchange.send(200, headers, body);
}
