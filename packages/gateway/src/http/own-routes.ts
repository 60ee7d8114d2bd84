import type { IncomingMessage, ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import { gaugesOf } from '../observe/metrics.js';
import { QueryFault } from '../query/query-error.js';
import { openApiOf, type Schema } from '../schema/schema.js';
import type { SchemaGroup, SchemaKeeper } from '../schema/schema-registry.js';
import type { GatewayParts } from './gateway-deps.js';
import { Exchange, sendFault, sendJson, sendJsonText } from './request-context.js';

/** What the gateway serves of its own, beside the chain's routes. */
export interface OwnRoute {
  /** Whether it is open to those who may not ask the chain. */
  readonly isPublic: boolean;
  serve(exchange: Exchange, parts: GatewayParts): void;
}

/** By path; all of them by GET and HEAD. */
export const ownRoutes: ReadonlyMap<string, OwnRoute> = new Map<string, OwnRoute>([
  ['/', { isPublic: true, serve: (exchange) => sendJson(exchange, 200, ENTRANCE) }],
  ['/health', { isPublic: true, serve: serveHealth }],
  ['/routes', { isPublic: true, serve: serveRoutes }],
  ['/docs/openapi.json', { isPublic: true, serve: serveOpenApi }],
  ['/metrics', { isPublic: false, serve: serveMetrics }],
]);

/** What the port for operators serves: the same, with the addresses of the nodes. */
export const operatorRoutes: ReadonlyMap<string, OwnRoute['serve']> = new Map([
  ['/health', serveDetailedHealth],
  ['/metrics', serveDetailedMetrics],
]);

const ENTRANCE = {
  name: 'Sibyl protocol query gateway',
  docs: '/docs',
  routes: '/routes',
  health: '/health',
};

function serveHealth(exchange: Exchange, parts: GatewayParts): void {
  const health = summarizeHealth(parts);
  sendJson(exchange, isServing(health) ? 200 : 503, health);
}

function serveDetailedHealth(exchange: Exchange, parts: GatewayParts): void {
  const health = summarizeHealth(parts);
  const body = { ...health, details: describeNodes(parts) };
  sendJson(exchange, isServing(health) ? 200 : 503, body);
}

const isServing = ({ status }: ReturnType<typeof summarizeHealth>) =>
  status === 'ok' || status === 'degraded';

/** Texts that are large and the same until a schema changes: made once, not for each request. */
const routeLists = new WeakMap<readonly SchemaGroup[], Buffer>();
const documents = new WeakMap<Schema, Buffer>();

function serveRoutes(exchange: Exchange, { keeper }: GatewayParts): void {
  const { groups } = keeper;
  const text = routeLists.get(groups) ?? Buffer.from(JSON.stringify(listRoutes(groups)));
  routeLists.set(groups, text);
  sendJsonText(exchange, 200, text);
}

function listRoutes(groups: readonly SchemaGroup[]) {
  const schemas = groups.map(({ schema, source, nodes }) => ({
    fingerprint: schema.fingerprint,
    source,
    nodes: nodes.length,
    routes: schema.routes.map((route) => ({
      method: route.httpMethod,
      path: route.template,
      rpc: route.grpcMethod,
      summary: route.summary,
      isServed: route.isServed && !route.isWrite,
    })),
  }));
  return { schemas };
}

function serveOpenApi(exchange: Exchange, { keeper }: GatewayParts): void {
  const wanted = exchange.query.get('schema');
  const group = keeper.groups.find(
    ({ schema }) => wanted === null || schema.fingerprint === wanted,
  );
  if (!group) throw new QueryFault(GrpcCode.notFound, 'no such schema is known now; see /routes');
  const { schema } = group;
  const info = { title: 'Chain queries', version: schema.fingerprint.slice(0, 12) };
  const document = documents.get(schema) ?? Buffer.from(JSON.stringify(openApiOf(schema, info)));
  documents.set(schema, document);
  sendJsonText(exchange, 200, document);
}

/** Nodes by their number: their addresses are no business of clients. */
function serveMetrics(exchange: Exchange, parts: GatewayParts): void {
  if (parts.config.metricsPort !== undefined) {
    throw new QueryFault(GrpcCode.notFound, 'metrics have a port of their own here');
  }
  sendMetrics(exchange, parts, ({ number }) => String(number));
}

function serveDetailedMetrics(exchange: Exchange, parts: GatewayParts): void {
  sendMetrics(exchange, parts, ({ name }) => name);
}

function sendMetrics(
  exchange: Exchange,
  { metrics, pool, answers, watches }: GatewayParts,
  labelNode: Parameters<typeof gaugesOf>[0]['labelNode'],
): void {
  const gauges = gaugesOf({ pool, cache: answers.cache, watchers: watches.size, labelNode });
  const headers = { 'Content-Type': 'text/plain; version=0.0.4' };
  exchange.send(200, headers, Buffer.from(metrics.print(gauges)));
}

/** Answers on the port for operators, which only they can reach. */
export function createOperatorHandler(parts: GatewayParts) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const exchange = new Exchange(request, response);
    const serve = operatorRoutes.get(exchange.path);
    const isRead = exchange.method === 'GET' || exchange.method === 'HEAD';
    if (serve && isRead) serve(exchange, parts);
    else sendFault(exchange, serve ? readOnly() : unknownPath());
  };
}

function unknownPath(): QueryFault {
  const paths = [...operatorRoutes.keys()].join(' and ');
  return new QueryFault(GrpcCode.notFound, `this port serves ${paths}`);
}

function readOnly(): QueryFault {
  const headers = { Allow: 'GET, HEAD' };
  return new QueryFault(GrpcCode.unimplemented, 'only GET and HEAD are allowed here', {
    status: 405,
    headers,
  });
}

export interface HealthParts {
  readonly pool: NodePool;
  readonly keeper: SchemaKeeper;
}

/** How the gateway is, for people and for load balancers: anyone may read it, so it names no node. */
export function summarizeHealth({ pool, keeper }: HealthParts) {
  const states = pool.nodes.map((node) => stateOf(node, pool));
  const count = (wanted: string) => states.filter((state) => state === wanted).length;
  return {
    status: statusOf(count('up'), states.length, keeper.groups.length),
    latestHeight: String(pool.latest),
    nodes: {
      total: states.length,
      up: count('up'),
      lagging: count('lagging'),
      down: count('down'),
    },
    schemas: keeper.groups.length,
    timestamp: new Date().toISOString(),
  };
}

/** How each node is, for operators. */
export function describeNodes({ pool, keeper }: HealthParts) {
  return {
    nodes: pool.nodes.map((node) => nodeHealth(node, { pool, keeper })),
    schemas: keeper.groups.map(({ schema, source, nodes }) => ({
      fingerprint: schema.fingerprint,
      source,
      routes: schema.routes.length,
      nodes: nodes.map(({ name }) => name),
    })),
  };
}

function statusOf(up: number, all: number, schemas: number) {
  if (schemas === 0) return 'starting';
  if (up === 0) return 'down';
  return up < all ? 'degraded' : 'ok';
}

function nodeHealth(node: ChainNode, { pool, keeper }: HealthParts) {
  const { name, upstream, height, earliest, latencyMs, breaker } = node;
  const state = stateOf(node, pool);
  const reason = node.setAside ?? (state === 'up' ? undefined : node.lastFault);
  return {
    number: node.number,
    url: name,
    kind: upstream.kind,
    state,
    ...(reason !== undefined && { reason }),
    height: String(height),
    ...(earliest !== undefined && { earliest: String(earliest) }),
    lag: Math.max(0, pool.latest - height),
    ...(height > 0 && { secondsSinceBlock: rounded((performance.now() - node.blockAt) / 1000) }),
    latencyMs: rounded(latencyMs),
    errorRate: rounded(breaker.errorRate),
    ...(keeper.isKnown(node) && { version: keeper.versionOf(node) }),
  };
}

function stateOf(node: ChainNode, pool: NodePool): 'up' | 'lagging' | 'down' {
  if (!node.isUp) return 'down';
  return pool.isLagging(node) ? 'lagging' : 'up';
}

const rounded = (value: number) => Math.round(value * 100) / 100;
