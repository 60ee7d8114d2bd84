import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { GrpcServer, QueryHandler } from '../../src/grpc-server.js';
import { CHAIN_ID } from '../../src/queries/node.js';
import type { Blocks } from '../../src/queries/service.js';
import { abciQuery } from './abci-query.js';

export interface RpcServerOptions {
  readonly answer: QueryHandler;
  readonly blocks: Blocks;
  readonly version: string;
  readonly port?: number;
}

type Params = Readonly<Record<string, unknown>>;

interface RpcCall {
  readonly id: unknown;
  readonly method: string;
  readonly params: Params;
}

/** The RPC server of a CometBFT node: `status` and `abci_query`, by JSON-RPC or URL. */
export async function startRpcServer(options: RpcServerOptions): Promise<GrpcServer> {
  const server = createServer(async (request, response) => {
    const body = await reply(request, options);
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  server.listen(options.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `rpc+http://127.0.0.1:${port}`,
    port,
    goAway: () => server.closeIdleConnections(),
    dropConnections: () => server.closeAllConnections(),
    unref: () => void server.unref(),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function reply(request: IncomingMessage, options: RpcServerOptions): Promise<unknown> {
  const { id, method, params } = await readCall(request);
  const base = { jsonrpc: '2.0', id };
  if (method === 'status') return { ...base, result: buildStatus(options) };
  if (method === 'abci_query') return { ...base, result: await abciQuery(params, options) };
  return { ...base, error: { code: -32601, message: 'Method not found', data: method } };
}

async function readCall(request: IncomingMessage): Promise<RpcCall> {
  if (request.method === 'POST') {
    const { id, method, params = {} } = JSON.parse(await text(request));
    return { id, method, params };
  }
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://node');
  // In a URL, strings are in quotes and bytes begin with 0x.
  const params = [...searchParams].map(([name, value]) => [name, value.replace(/^"|"$|^0x/g, '')]);
  return { id: -1, method: pathname.slice(1), params: Object.fromEntries(params) };
}

function buildStatus({ blocks, version }: RpcServerOptions) {
  const { latest, earliest } = blocks;
  return {
    node_info: { network: CHAIN_ID, version: '0.38.17', moniker: version, other: {} },
    sync_info: {
      latest_block_height: String(latest),
      latest_block_time: blocks.getTime(latest).toISOString(),
      earliest_block_height: String(earliest),
      earliest_block_time: blocks.getTime(earliest).toISOString(),
      catching_up: false,
    },
    validator_info: {},
  };
}
