import { AbciUpstream } from '../upstream/abci/abci-upstream.js';
import { GrpcUpstream, type GrpcUpstreamOptions } from '../upstream/grpc/grpc-upstream.js';
import type { Upstream } from '../upstream/upstream.js';

/** The upstream of an address, by its scheme. */
export function createUpstream(options: GrpcUpstreamOptions): Upstream {
  return options.url.protocol.startsWith('rpc+')
    ? new AbciUpstream(options)
    : new GrpcUpstream(options);
}
