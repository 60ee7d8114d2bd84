import { GrpcCode, GrpcError, ReplyMemory } from '@sibyl/grpc-client';
import { z } from 'zod';
import { toGrpcError } from './abci-error.js';
import { BlockSubscription } from './block-subscription.js';
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
    return {
      message: Buffer.from(response.value ?? '', 'base64'),
      height: Number(response.height ?? 0) || undefined,
    };
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
