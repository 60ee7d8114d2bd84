import { z } from 'zod';
import { basicOf } from '../basic-credentials.js';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import { ReplyMemory } from '../reply-memory.js';
import type { NodeStatus, Upstream, UpstreamCall, UpstreamReply } from '../upstream.js';
import { abciFault } from './abci-fault.js';
import { JsonRpc } from './json-rpc.js';

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

export interface AbciUpstreamOptions {
  /** `rpc+http://…` or `rpc+https://…`; a user and password go along as Basic. */
  readonly url: URL;
  readonly ca?: readonly string[] | undefined;
  readonly maxReplyBytes: number;
  /** Shared by all nodes; unset: a memory of its own. */
  readonly memory?: ReplyMemory | undefined;
}

/** A node spoken to by `abci_query` of its CometBFT RPC: the same messages in another envelope. */
export class AbciUpstream implements Upstream {
  readonly kind = 'rpc';
  private readonly rpc: JsonRpc;

  constructor(private readonly options: AbciUpstreamOptions) {
    const url = new URL(options.url.href.replace(/^rpc\+/, ''));
    const authorization = basicOf(url);
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
    if (code) throw abciFault({ code, codespace: codespace ?? '', log: log ?? '' });
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
  const text = `the node's answer has an unknown shape: ${z.prettifyError(error)}`;
  throw new GrpcError(GrpcCode.internal, text, 'transport');
}
