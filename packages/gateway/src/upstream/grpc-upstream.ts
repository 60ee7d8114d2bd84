import {
  createGrpcClient,
  type GrpcClient,
  GrpcCode,
  GrpcError,
  type MessageStream,
} from '@sibyl/grpc-client';
import { bytesFields, integerField, messageAt, readRpcAddress } from './abci-upstream.js';
import {
  BlockSubscription,
  HEIGHT_METADATA,
  type NodeStatus,
  parseHeight,
  readBasicCredentials,
  type Upstream,
  type UpstreamCall,
  type UpstreamOptions,
  type UpstreamReply,
} from './upstream.js';

const STATUS = '/cosmos.base.node.v1beta1.Service/Status';
const LATEST_BLOCK = '/cosmos.base.tendermint.v1beta1.Service/GetLatestBlock';
/** The smallest reply that every node has, for the height in its headers. */
const SYNCING = '/cosmos.base.tendermint.v1beta1.Service/GetSyncing';
const NOTHING = new Uint8Array();

/** A node reached by gRPC. */
export class GrpcUpstream implements Upstream {
  readonly kind = 'grpc';
  onConnected: (() => void) | undefined;
  private readonly client: GrpcClient;
  private heightMethod = STATUS;

  constructor(private readonly options: UpstreamOptions) {
    const { url, ca, http2, maxReplyBytes, memory } = options;
    this.client = createGrpcClient({
      url,
      ca,
      http2,
      authorization: readBasicCredentials(url),
      userAgent: 'sibyl-gateway',
      maxReplyBytes,
      memory,
      onConnected: () => this.onConnected?.(),
    });
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const { height, timeoutMs, signal, maxReplyBytes, owner } = call;
    const metadata =
      height === undefined
        ? call.metadata
        : { [HEIGHT_METADATA]: String(height), ...call.metadata };
    const options = { metadata, timeoutMs, signal, maxReplyBytes, owner };
    const reply = await this.client.call(method, message, options);
    return { message: reply.message, height: parseHeight(reply.headers.get(HEIGHT_METADATA)) };
  }

  async status(timeoutMs: number): Promise<NodeStatus> {
    try {
      return await this.readStatus(timeoutMs);
    } catch (error) {
      if (!(error instanceof GrpcError) || error.code !== GrpcCode.unimplemented) throw error;
      this.heightMethod = SYNCING;
      return this.readLatestBlock(timeoutMs);
    }
  }

  async readHeight(timeoutMs: number): Promise<number> {
    return (await this.call(this.heightMethod, NOTHING, { timeoutMs })).height ?? 0;
  }

  /** Only RPC reports blocks, so the address of the node's RPC is needed too. */
  watchBlocks(onBlock: (height: number) => void): () => void {
    const { rpc, ca } = this.options;
    if (!rpc) return () => {};
    const subscription = new BlockSubscription({ ...readRpcAddress(rpc), ca, onBlock });
    return () => subscription.close();
  }

  open(
    method: string,
    call: Pick<UpstreamCall, 'timeoutMs' | 'maxReplyBytes'>,
  ): Promise<MessageStream> {
    return this.client.open(method, call);
  }

  close(): void {
    this.client.close();
  }

  /** StatusResponse: 1 earliest_store_height, 2 height. */
  private async readStatus(timeoutMs: number): Promise<NodeStatus> {
    const { message, height } = await this.call(STATUS, NOTHING, { timeoutMs });
    const earliest = integerField(message, 1);
    return {
      height: integerField(message, 2) || (height ?? 0),
      // Nodes that do not know it send 0.
      earliest: earliest > 0 ? earliest : undefined,
      isCatchingUp: false,
    };
  }

  /** GetLatestBlockResponse: 2 block, 3 sdk_block; in both, header is 1, and in the header, height is 3. */
  private async readLatestBlock(timeoutMs: number): Promise<NodeStatus> {
    const reply = await this.call(LATEST_BLOCK, NOTHING, { timeoutMs });
    const block = bytesFields(reply.message, 3)[0] ?? messageAt(reply.message, [2]);
    const height = integerField(messageAt(block, [1]), 3) || reply.height;
    if (!height) throw new GrpcError(GrpcCode.internal, 'the node does not report its height');
    return { height, earliest: undefined, isCatchingUp: false };
  }
}
