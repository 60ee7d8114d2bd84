import { GrpcCode, GrpcError } from '../upstream/grpc-error.js';
import type { Upstream } from '../upstream/upstream.js';
import { messageAt } from '../upstream/wire-fields.js';

const NODE_INFO = '/cosmos.base.tendermint.v1beta1.Service/GetNodeInfo';
const TIMEOUT_MS = 5000;

/** Which chain a node belongs to and which program it runs. */
export interface NodeVersion {
  readonly network: string;
  /** Equal while the program is. */
  readonly build: string;
  readonly version: string;
}

/** Asks a node what it runs; undefined if it has no answer to that. */
export async function readNodeVersion(upstream: Upstream): Promise<NodeVersion | undefined> {
  try {
    const { message } = await upstream.call(NODE_INFO, new Uint8Array(), { timeoutMs: TIMEOUT_MS });
    const textAt = (path: readonly number[]) => Buffer.from(messageAt(message, path)).toString();
    // GetNodeInfoResponse: 1 default_node_info (4 network), 2 application_version (3 version).
    const build = Buffer.from(messageAt(message, [2])).toString('base64');
    return { network: textAt([1, 4]), version: textAt([2, 3]), build };
  } catch (fault) {
    if (fault instanceof GrpcError && fault.code === GrpcCode.unimplemented) return undefined;
    throw fault;
  }
}
