import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { type WebSocket, WebSocketServer } from 'ws';
import type { GrpcServer, QueryHandler } from '../../src/grpc-server.js';
import { CHAIN_ID } from '../../src/queries/node.js';
import { abciQuery } from './abci-query.js';
import type { ManualBlocks } from './manual-blocks.js';

export interface RpcServerOptions {
  readonly answer: QueryHandler;
  readonly blocks: ManualBlocks;
  readonly version: string;
  readonly port?: number;
  /** The most calls in one request; default: 10, as of a node. */
  readonly maxBatch?: number;
  /** Whether clients may subscribe to blocks; default: yes. */
  readonly hasWebSocket?: boolean;
}

type Params = Readonly<Record<string, unknown>>;

interface RpcCall {
  readonly id: unknown;
  readonly method: string;
  readonly params?: Params;
}

const MAX_BATCH = 10;

/**
 * The RPC server of a CometBFT node: `status`, `abci_info` and `abci_query`, by JSON-RPC, several in a request, or by URL;
 * and new blocks over a WebSocket.
 */
export async function startRpcServer(options: RpcServerOptions): Promise<GrpcServer> {
  const server = createServer(async (request, response) => {
    const body = await replyAll(request, options);
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  const dropSubscribers =
    (options.hasWebSocket ?? true) ? serveSubscriptions(server, options) : () => {};
  server.listen(options.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `rpc+http://127.0.0.1:${port}`,
    port,
    goAway: () => server.closeIdleConnections(),
    dropConnections: () => {
      server.closeAllConnections();
      dropSubscribers();
    },
    unref: () => void server.unref(),
    async close() {
      server.closeAllConnections();
      dropSubscribers();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function replyAll(request: IncomingMessage, options: RpcServerOptions): Promise<unknown> {
  const calls = await readCalls(request);
  if (!Array.isArray(calls)) return reply(calls, options);
  if (calls.length > (options.maxBatch ?? MAX_BATCH)) {
    return { jsonrpc: '2.0', id: -1, error: { code: -32600, message: 'batch request too large' } };
  }
  const replies: unknown[] = [];
  // A node answers the calls of a request one after the other.
  for (const call of calls) replies.push(await reply(call, options));
  return replies;
}

async function reply(
  { id, method, params = {} }: RpcCall,
  options: RpcServerOptions,
): Promise<unknown> {
  const base = { jsonrpc: '2.0', id };
  if (method === 'status') return { ...base, result: buildStatus(options) };
  if (method === 'abci_info') {
    const last_block_height = String(options.blocks.latest);
    return { ...base, result: { response: { data: 'demo', last_block_height } } };
  }
  if (method === 'abci_query') return { ...base, result: await abciQuery(params, options) };
  return { ...base, error: { code: -32601, message: 'Method not found', data: method } };
}

async function readCalls(request: IncomingMessage): Promise<RpcCall | RpcCall[]> {
  if (request.method === 'POST') return JSON.parse(await text(request));
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://node');
  // In a URL, strings are in quotes and bytes begin with 0x.
  const params = [...searchParams].map(([name, value]) => [name, value.replace(/^"|"$|^0x/g, '')]);
  return { id: -1, method: pathname.slice(1), params: Object.fromEntries(params) };
}

const NEW_BLOCK_HEADER = "tm.event='NewBlockHeader'";

/** Answers `subscribe` for the headers of new blocks; returns the function that drops the subscribers. */
function serveSubscriptions(server: Server, { blocks }: RpcServerOptions): () => void {
  const sockets = new WebSocketServer({ server, path: '/websocket' });
  sockets.on('connection', (socket: WebSocket) => {
    socket.on('message', (data) => {
      const { id, method, params } = JSON.parse(String(data)) as RpcCall;
      const { query } = params ?? {};
      const send = (result: object) => socket.send(JSON.stringify({ jsonrpc: '2.0', id, result }));
      if (method !== 'subscribe' || query !== NEW_BLOCK_HEADER) return;
      send({});
      const report = (height: number) => {
        const header = { chain_id: CHAIN_ID, height: String(height) };
        const type = 'tendermint/event/NewBlockHeader';
        send({ query, data: { type, value: { header } } });
      };
      blocks.listeners.add(report);
      socket.once('close', () => blocks.listeners.delete(report));
    });
  });
  return () => {
    for (const socket of sockets.clients) socket.terminate();
  };
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
