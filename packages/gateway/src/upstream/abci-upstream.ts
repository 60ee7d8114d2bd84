import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { GrpcCode, GrpcError, ReplyMemory } from '@sibyl/grpc-client';
import { z } from 'zod';
import { JsonRpc } from './json-rpc.js';
import {
  BlockSubscription,
  type NodeStatus,
  readBasicCredentials,
  type Upstream,
  type UpstreamCall,
  type UpstreamOptions,
  type UpstreamReply,
} from './upstream.js';

type WireValue = bigint | Uint8Array;

/** Iterates over a message without its descriptor, for messages that are read before the schema is known. */
export function* wireFields(message: Uint8Array): Generator<[number, WireValue]> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (type === WireType.Varint) yield [number, BigInt(reader.uint64())];
    else if (type === WireType.LengthDelimited) yield [number, reader.bytes()];
    else reader.skip(type, number);
  }
}

/** The strings, bytes or messages of one field, in order. */
export function bytesFields(message: Uint8Array, field: number): Uint8Array[] {
  return [...wireFields(message)].flatMap(([number, value]) =>
    number === field && typeof value !== 'bigint' ? [value] : [],
  );
}

/** The message at the end of a path of field numbers; empty if absent. */
export function messageAt(message: Uint8Array, path: readonly number[]): Uint8Array {
  return path.reduce((at, field) => bytesFields(at, field)[0] ?? new Uint8Array(), message);
}

/** A non-negative integer field; 0 if absent. */
export function integerField(message: Uint8Array, field: number): number {
  const found = [...wireFields(message)].find(([number]) => number === field)?.[1];
  return typeof found === 'bigint' ? Number(found) : 0;
}

/** The error of an `abci_query`. */
export interface AbciError {
  readonly code: number;
  readonly codespace: string;
  readonly log: string;
}

/**
 * The SDK wraps the error of a query into one of these, by its gRPC code, and appends the text. An error without
 * a gRPC code becomes an invalid request, all other codes an unknown request.
 */
const UNAUTHORIZED = 4;
const UNKNOWN_REQUEST = 6;
const INVALID_REQUEST = 18;
const KEY_NOT_FOUND = 22;
const SUFFIXES: Readonly<Record<number, string>> = {
  [UNAUTHORIZED]: ': unauthorized',
  [UNKNOWN_REQUEST]: ': unknown request',
  [INVALID_REQUEST]: ': invalid request',
  [KEY_NOT_FOUND]: ': key not found',
};

const CODES: Readonly<Record<number, GrpcCode>> = {
  [UNAUTHORIZED]: GrpcCode.unauthenticated,
  [KEY_NOT_FOUND]: GrpcCode.notFound,
};

/** The log of a method that the node does not have. */
const UNKNOWN_PATH = 'unknown query path: unknown request';
/** Rejected before the query ran, so the text is the whole error. */
const HEIGHT_REJECTED = /^(?:failed to load state at height|cannot query with height)/;
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

const GO_STATUS = /rpc error: code = (\w+) desc = /;

/** The gRPC error that the same query would have had over gRPC. */
export function toGrpcError({ code, codespace, log }: AbciError): GrpcError {
  if (codespace === UNDECLARED || codespace === '') {
    return new GrpcError(GrpcCode.internal, withoutSuffix(log, ': panic'));
  }
  if (codespace !== 'sdk') return new GrpcError(GrpcCode.unknown, log);
  if (log === UNKNOWN_PATH) return new GrpcError(GrpcCode.unimplemented, log);
  if (HEIGHT_REJECTED.test(log)) return new GrpcError(GrpcCode.unknown, log);
  const text = withoutSuffix(log, SUFFIXES[code]);
  const status = GO_STATUS.exec(text);
  const stated = GO_CODES.indexOf(status?.[1] ?? '');
  if (!status || stated < 1) return new GrpcError(CODES[code] ?? GrpcCode.unknown, text);
  // An error that wraps a status has its code and its own text.
  const message = status.index === 0 ? text.slice(status[0].length) : text;
  return new GrpcError(stated as GrpcCode, message);
}

function withoutSuffix(text: string, suffix: string | undefined): string {
  return suffix && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}

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

const InfoResult = z.object({ response: z.object({ last_block_height: count.nullish() }) });

const MAX_STATUS_BYTES = 1024 * 1024;

/** A node reached by `abci_query` of its CometBFT RPC: the same messages in another envelope. */
export class AbciUpstream implements Upstream {
  readonly kind = 'rpc';
  private readonly rpc: JsonRpc;
  private readonly address: RpcAddress;

  constructor(private readonly options: UpstreamOptions) {
    this.address = readRpcAddress(options.url);
    const memory = options.memory ?? new ReplyMemory(Number.POSITIVE_INFINITY);
    this.rpc = new JsonRpc({ ...this.address, ca: options.ca, memory });
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
    const reply = Buffer.from(response.value ?? '', 'base64');
    // Calls that share a request also share its limit.
    if (reply.length > maxReplyBytes) throw tooLarge(reply.length, maxReplyBytes);
    return { message: reply, height: Number(response.height ?? 0) || undefined };
  }

  /** The latest block of the status may not have been executed yet, so the height is that of the state. */
  async status(timeoutMs: number): Promise<NodeStatus> {
    const limits = { timeoutMs, maxReplyBytes: MAX_STATUS_BYTES };
    const [status, height] = await Promise.all([
      this.rpc.call('status', {}, limits),
      this.readHeight(timeoutMs).catch(() => 0),
    ]);
    const { sync_info: sync } = read(StatusResult, status);
    return {
      height: height || Number(sync.latest_block_height),
      earliest: Number(sync.earliest_block_height ?? 0) || undefined,
      isCatchingUp: sync.catching_up ?? false,
    };
  }

  async readHeight(timeoutMs: number): Promise<number> {
    const limits = { timeoutMs, maxReplyBytes: MAX_STATUS_BYTES };
    const info = read(InfoResult, await this.rpc.call('abci_info', {}, limits));
    return Number(info.response.last_block_height ?? 0);
  }

  watchBlocks(onBlock: (height: number) => void): () => void {
    const subscription = new BlockSubscription({ ...this.address, ca: this.options.ca, onBlock });
    return () => subscription.close();
  }

  close(): void {
    this.rpc.close();
  }
}

function tooLarge(bytes: number, maxBytes: number): GrpcError {
  const text = `the reply has ${bytes} bytes; the limit is ${maxBytes}`;
  return new GrpcError(GrpcCode.resourceExhausted, text);
}

export interface RpcAddress {
  /** Without credentials. */
  readonly url: URL;
  readonly authorization: string | undefined;
}

/** The address of a node's RPC, with or without `rpc+`. */
export function readRpcAddress({ href }: URL): RpcAddress {
  const url = new URL(href.replace(/^rpc\+/, ''));
  const authorization = readBasicCredentials(url);
  url.username = '';
  url.password = '';
  return { url, authorization };
}

function read<T extends z.ZodType>(schema: T, result: unknown): z.infer<T> {
  const { data, error } = schema.safeParse(result);
  if (!error) return data;
  const text = `the node's reply has an unknown format: ${z.prettifyError(error)}`;
  throw new GrpcError(GrpcCode.internal, text, 'transport');
}
