import { loadChainSchema } from '../../src/chain-schema.js';
import { createDemoChain, type DemoChain } from '../../src/demo-chain.js';
import { type Query, type QueryResult, startGrpcServer } from '../../src/grpc-server.js';
import { LOCALHOST_TLS } from './localhost-tls.js';
import { ManualBlocks } from './manual-blocks.js';
import { type RpcServerOptions, startRpcServer } from './rpc-server.js';

/** Runs before the chain handles a query: returns another result, throws a `GrpcError`, or waits. */
export type Interruption = (
  query: Query,
) => QueryResult | undefined | Promise<QueryResult | undefined>;

export interface TestNodeOptions {
  /** The protocol; default: plaintext gRPC. */
  readonly over?: 'grpc' | 'grpcs' | 'rpc+http';
  readonly blocks?: ManualBlocks;
  /** The version the node reports. */
  readonly version?: string;
  /** The port of a node that restarts. */
  readonly port?: number;
  /** Default: the demo chain. */
  readonly chain?: DemoChain;
  /** Whether streams, which reflection uses, end after the first answer. */
  readonly endsStreams?: boolean;
  /** Of a node over RPC: the most calls in one request, and whether clients may subscribe to blocks. */
  readonly rpc?: Pick<RpcServerOptions, 'maxBatch' | 'hasWebSocket'>;
}

/** A node that a test controls. */
export interface TestNode {
  /** In the format of `GATEWAY_UPSTREAMS`. */
  readonly url: string;
  readonly port: number;
  readonly blocks: ManualBlocks;
  /** How many queries have arrived: of one method, such as `ixo.entity.v1beta1.Query/Entity`, or of all. */
  countCalls(method?: string): number;
  /** Runs before every query from now on; undefined: the chain answers directly again. */
  interrupt(interruption?: Interruption): void;
  /** Sends GOAWAY to all clients; running calls finish. */
  goAway(): void;
  /** Drops all connections; new ones are accepted. */
  dropConnections(): void;
  close(): Promise<void>;
}

const schema = loadChainSchema();

/** Starts the demo chain as a node whose blocks, errors and connections the test controls. */
export async function startTestNode(options: TestNodeOptions = {}): Promise<TestNode> {
  const { over = 'grpc', blocks = new ManualBlocks(), version = 'v1.0.0', port = 0 } = options;
  const chain = options.chain ?? createDemoChain({ schema, blocks, version });
  const calls = new Map<string, number>();
  let interruption: Interruption | undefined;
  const answer = async (query: Query) => {
    calls.set(query.method, (calls.get(query.method) ?? 0) + 1);
    return (await interruption?.(query)) ?? chain.answer(query);
  };
  const server =
    over === 'rpc+http'
      ? await startRpcServer({ answer, blocks, version, port, ...options.rpc })
      : await startGrpcServer({
          ...chain,
          answer,
          port,
          endsStreams: options.endsStreams,
          ...(over === 'grpcs' && { tls: LOCALHOST_TLS }),
        });
  return {
    ...server,
    blocks,
    countCalls: (method) =>
      method
        ? (calls.get(method) ?? 0)
        : [...calls.values()].reduce((sum, count) => sum + count, 0),
    interrupt(next) {
      interruption = next;
    },
  };
}
