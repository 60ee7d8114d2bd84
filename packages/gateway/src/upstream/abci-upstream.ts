import { GrpcCode, GrpcError, ReplyMemory } from '@sibyl/grpc-client';
import { z } from 'zod';
import { JsonRpc } from './json-rpc.js';
import {
  type NodeStatus,
  readBasicCredentials,
  type Upstream,
  type UpstreamCall,
  type UpstreamOptions,
  type UpstreamReply,
} from './upstream.js';

const count = z.union([z.string().regex(/^\d{1,15}$/), z.number().int().nonnegative()]);

const QueryResult = z.object({
  response: z.object({
    code: z.number().nullish(),
    codespace: z.string().nullish(),
    log: z.string().nullish(),
    value: z.string().nullish(),
    height: count.nullish(),
  }),
});

const StatusResult = z.object({
  sync_info: z.object({
    latest_block_height: count,
    earliest_block_height: count.nullish(),
    catching_up: z.boolean().nullish(),
  }),
});

/** A node reached by `abci_query` of its CometBFT RPC: the same messages in another envelope. */
export class AbciUpstream implements Upstream {
  readonly kind = 'rpc';
  private readonly rpc: JsonRpc;

  constructor(private readonly options: UpstreamOptions) {
    const url = new URL(options.url.href.replace(/^rpc\+/, ''));
    const authorization = readBasicCredentials(url);
    url.username = '';
    url.password = '';
    const memory = options.memory ?? new ReplyMemory(Number.POSITIVE_INFINITY);
    this.rpc = new JsonRpc({ url, authorization, ca: options.ca, memory });
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const data = Buffer.from(message.buffer, message.byteOffset, message.length).toString('hex');
    const params = { path: method, data, height: String(call.height ?? 0), prove: false };
    const { maxReplyBytes = this.options.maxReplyBytes, timeoutMs, signal } = call;
    // Base64 takes four characters for three bytes, and the envelope some more.
    const limits = { timeoutMs, signal, maxReplyBytes: Math.ceil((maxReplyBytes * 4) / 3) + 4096 };
    const result = await this.rpc.call('abci_query', params, limits);
    const { response } = read(QueryResult, result);
    const { code, codespace, log } = response;
    if (code) throw toGrpcError({ code, codespace: codespace ?? '', log: log ?? '' });
    return {
      message: Buffer.from(response.value ?? '', 'base64'),
      height: Number(response.height ?? 0) || undefined,
    };
  }

  async status(timeoutMs: number): Promise<NodeStatus> {
    const limits = { timeoutMs, maxReplyBytes: 1024 * 1024 };
    const { sync_info: sync } = read(StatusResult, await this.rpc.call('status', {}, limits));
    return {
      height: Number(sync.latest_block_height),
      earliest: Number(sync.earliest_block_height ?? 0) || undefined,
      isCatchingUp: sync.catching_up ?? false,
    };
  }

  close(): void {
    this.rpc.close();
  }
}

function read<T extends z.ZodType>(schema: T, result: unknown): z.infer<T> {
  const { data, error } = schema.safeParse(result);
  if (!error) return data;
  const text = `the node's reply has an unknown format: ${z.prettifyError(error)}`;
  throw new GrpcError(GrpcCode.internal, text, 'transport');
}

/** The error of an `abci_query`. */
export interface AbciError {
  readonly code: number;
  readonly codespace: string;
  readonly log: string;
}

/** Codes of the codespace `sdk` that a query can end with. */
const SDK_CODES: Readonly<Record<number, GrpcCode>> = {
  1: GrpcCode.internal,
  4: GrpcCode.unauthenticated,
  6: GrpcCode.unimplemented,
  7: GrpcCode.invalidArgument,
  8: GrpcCode.invalidArgument,
  18: GrpcCode.invalidArgument,
  22: GrpcCode.invalidArgument,
  26: GrpcCode.invalidArgument,
  29: GrpcCode.invalidArgument,
  30: GrpcCode.notFound,
  35: GrpcCode.internal,
  36: GrpcCode.aborted,
  37: GrpcCode.unimplemented,
  38: GrpcCode.notFound,
};

/** The codespace of errors that no module declares, such as a panic. */
const UNDECLARED = 'undefined';

/** Names of gRPC codes as Go prints them. */
const GO_CODES = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
];

const GO_STATUS = /^rpc error: code = (\w+) desc = ([\s\S]*)$/;

/** The gRPC error that the same query would have had over gRPC. */
export function toGrpcError({ code, codespace, log }: AbciError): GrpcError {
  const [, name = '', description = ''] = GO_STATUS.exec(log) ?? [];
  const stated = GO_CODES.indexOf(name);
  if (stated > 0) return new GrpcError(stated as GrpcCode, withoutKind(description, code));
  if (codespace === 'sdk') return new GrpcError(SDK_CODES[code] ?? GrpcCode.unknown, log);
  if (codespace === UNDECLARED || codespace === '') return new GrpcError(GrpcCode.internal, log);
  return new GrpcError(GrpcCode.unknown, log);
}

/** The node appends its own kind of error to the status of the query. */
const KINDS: Readonly<Record<number, string>> = {
  4: ': unauthorized',
  18: ': invalid request',
  30: ': key not found',
};

function withoutKind(description: string, code: number): string {
  const kind = KINDS[code];
  return kind && description.endsWith(kind) ? description.slice(0, -kind.length) : description;
}
