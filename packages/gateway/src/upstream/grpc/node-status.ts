import { GrpcCode, GrpcError } from '../grpc-error.js';
import type { NodeStatus, Upstream } from '../upstream.js';
import { bytesFields, integerField, messageAt } from '../wire-fields.js';

const STATUS = '/cosmos.base.node.v1beta1.Service/Status';
const LATEST_BLOCK = '/cosmos.base.tendermint.v1beta1.Service/GetLatestBlock';

/** Asks a gRPC node how far it is: in short where it can, by its latest block where it cannot. */
export async function readNodeStatus(upstream: Upstream, timeoutMs: number): Promise<NodeStatus> {
  try {
    return await askStatus(upstream, timeoutMs);
  } catch (fault) {
    if (!(fault instanceof GrpcError) || fault.code !== GrpcCode.unimplemented) throw fault;
    return askLatestBlock(upstream, timeoutMs);
  }
}

/** StatusResponse: 1 earliest_store_height, 2 height. */
async function askStatus(upstream: Upstream, timeoutMs: number): Promise<NodeStatus> {
  const { message, height } = await upstream.call(STATUS, new Uint8Array(), { timeoutMs });
  const earliest = integerField(message, 1);
  return {
    height: integerField(message, 2) || (height ?? 0),
    // Nodes that do not know their own answer 0.
    earliest: earliest > 0 ? earliest : undefined,
    isCatchingUp: false,
  };
}

/** GetLatestBlockResponse: 2 block, 3 sdk_block; both have the header at 1, and that its height at 3. */
async function askLatestBlock(upstream: Upstream, timeoutMs: number): Promise<NodeStatus> {
  const { message, height } = await upstream.call(LATEST_BLOCK, new Uint8Array(), { timeoutMs });
  const block = bytesFields(message, 3)[0] ?? messageAt(message, [2]);
  const told = integerField(messageAt(block, [1]), 3) || height;
  if (!told) throw new GrpcError(GrpcCode.internal, 'the node does not say its height');
  return { height: told, earliest: undefined, isCatchingUp: false };
}
