import type { IncomingMessage, ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import { collectGauges } from '../observe/metrics.js';
import { QueryError } from '../query/query-error.js';
import { buildOpenApi, type Schema } from '../schema/schema.js';
import type { SchemaGroup, SchemaRegistry } from '../schema/schema-registry.js';
import { describeBatch } from './batch.js';
import type { GatewayDeps } from './gateway-deps.js';
import { RequestContext, sendError, sendJson, sendJsonText } from './request-context.js';

/** A route of the gateway itself. */
export interface OwnRoute {
  /** Whether it needs no authentication. */
  readonly isPublic: boolean;
  serve(context: RequestContext, deps: GatewayDeps): void | Promise<void>;
}

/** By path, for GET and HEAD. */
export const ownRoutes: ReadonlyMap<string, OwnRoute> = new Map<string, OwnRoute>([
  ['/', { isPublic: true, serve: (context) => sendJson(context, 200, ENTRANCE) }],
  ['/health', { isPublic: true, serve: serveHealth }],
  ['/routes', { isPublic: true, serve: serveRoutes }],
  ['/docs/openapi.json', { isPublic: true, serve: serveOpenApi }],
  ['/metrics', { isPublic: false, serve: serveMetrics }],
]);

/** The routes of the operator port, which include the addresses of the nodes. */
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

function serveHealth(context: RequestContext, deps: GatewayDeps): void {
  const health = summarizeHealth(deps);
  sendJson(context, isServing(health) ? 200 : 503, health);
}

function serveDetailedHealth(context: RequestContext, deps: GatewayDeps): void {
  const health = summarizeHealth(deps);
  const body = { ...health, details: describeNodes(deps) };
  sendJson(context, isServing(health) ? 200 : 503, body);
}

const isServing = ({ status }: ReturnType<typeof summarizeHealth>) =>
  status === 'ok' || status === 'degraded';

/** Large texts, cached until a schema changes. */
const routeLists = new WeakMap<readonly SchemaGroup[], Buffer>();
const documents = new WeakMap<Schema, Buffer>();

function serveRoutes(context: RequestContext, { schemaRegistry }: GatewayDeps): void {
  const { groups } = schemaRegistry;
  const text = routeLists.get(groups) ?? Buffer.from(JSON.stringify(listRoutes(groups)));
  routeLists.set(groups, text);
  sendJsonText(context, 200, text);
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

function serveOpenApi(context: RequestContext, { schemaRegistry, config }: GatewayDeps): void {
  const wanted = context.query.get('schema');
  const group = schemaRegistry.groups.find(
    ({ schema }) => wanted === null || schema.fingerprint === wanted,
  );
  if (!group) throw new QueryError(GrpcCode.notFound, 'unknown schema; see /routes');
  const { schema } = group;
  const document = documents.get(schema) ?? printOpenApi(schema, config.batchLimit);
  documents.set(schema, document);
  sendJsonText(context, 200, document);
}

function printOpenApi(schema: Schema, batchLimit: number): Buffer {
  const info = { title: 'Chain queries', version: schema.fingerprint.slice(0, 12) };
  const document = buildOpenApi(schema, info);
  const paths = { ...document.paths, '/batch': { post: describeBatch(batchLimit) } };
  return Buffer.from(JSON.stringify({ ...document, paths }));
}

/** Labels nodes by number, to hide their addresses. */
async function serveMetrics(context: RequestContext, deps: GatewayDeps): Promise<void> {
  if (deps.config.metricsPort !== undefined) {
    throw new QueryError(GrpcCode.notFound, 'metrics are served on another port');
  }
  await sendMetrics(context, deps, ({ number }) => String(number));
}

function serveDetailedMetrics(context: RequestContext, deps: GatewayDeps): Promise<void> {
  return sendMetrics(context, deps, ({ name }) => name);
}

async function sendMetrics(
  context: RequestContext,
  { metrics, pool, queryService, watches }: GatewayDeps,
  labelNode: Parameters<typeof collectGauges>[0]['labelNode'],
): Promise<void> {
  const gauges = collectGauges({
    pool,
    cache: queryService.cache,
    watchers: watches.size,
    labelNode,
  });
  const headers = { 'Content-Type': metrics.contentType };
  context.send(200, headers, Buffer.from(await metrics.print(gauges)));
}

/** Handles requests on the operator port. */
export function createOperatorHandler(deps: GatewayDeps) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const context = new RequestContext(request, response);
    const serve = operatorRoutes.get(context.path);
    const isRead = context.method === 'GET' || context.method === 'HEAD';
    if (serve && isRead) Promise.resolve(serve(context, deps)).catch(() => response.destroy());
    else sendError(context, serve ? readOnly() : unknownPath());
  };
}

function unknownPath(): QueryError {
  const paths = [...operatorRoutes.keys()].join(' and ');
  return new QueryError(GrpcCode.notFound, `this port serves ${paths}`);
}

function readOnly(): QueryError {
  const headers = { Allow: 'GET, HEAD' };
  return new QueryError(GrpcCode.unimplemented, 'only GET and HEAD are allowed here', {
    status: 405,
    headers,
  });
}

export interface HealthDeps {
  readonly pool: NodePool;
  readonly schemaRegistry: SchemaRegistry;
}

/** Health for people and load balancers. It is public, so it names no node. */
export function summarizeHealth({ pool, schemaRegistry }: HealthDeps) {
  const states = pool.nodes.map((node) => getNodeState(node, pool));
  const count = (wanted: string) => states.filter((state) => state === wanted).length;
  return {
    status: summarizeStatus(count('up'), states.length, schemaRegistry.groups.length),
    latestHeight: String(pool.latest),
    nodes: {
      total: states.length,
      up: count('up'),
      lagging: count('lagging'),
      down: count('down'),
    },
    schemas: schemaRegistry.groups.length,
    timestamp: new Date().toISOString(),
  };
}

/** Health of each node, for operators. */
export function describeNodes({ pool, schemaRegistry }: HealthDeps) {
  return {
    nodes: pool.nodes.map((node) => nodeHealth(node, { pool, schemaRegistry })),
    schemas: schemaRegistry.groups.map(({ schema, source, nodes }) => ({
      fingerprint: schema.fingerprint,
      source,
      routes: schema.routes.length,
      nodes: nodes.map(({ name }) => name),
    })),
  };
}

function summarizeStatus(up: number, all: number, schemas: number) {
  if (schemas === 0) return 'starting';
  if (up === 0) return 'down';
  return up < all ? 'degraded' : 'ok';
}

function nodeHealth(node: ChainNode, { pool, schemaRegistry }: HealthDeps) {
  const { name, upstream, height, earliest, latencyMs, breaker } = node;
  const state = getNodeState(node, pool);
  const reason = node.excludedReason ?? (state === 'up' ? undefined : node.lastError);
  return {
    number: node.number,
    url: name,
    kind: upstream.kind,
    state,
    ...(reason !== undefined && { reason }),
    height: String(height),
    ...(earliest !== undefined && { earliest: String(earliest) }),
    lag: Math.max(0, pool.latest - height),
    ...(height > 0 && {
      secondsSinceBlock: rounded((performance.now() - node.lastBlockAt) / 1000),
    }),
    latencyMs: rounded(latencyMs),
    errorRate: rounded(breaker.errorRate),
    ...(schemaRegistry.isKnown(node) && { version: schemaRegistry.getVersion(node) }),
  };
}

function getNodeState(node: ChainNode, pool: NodePool): 'up' | 'lagging' | 'down' {
  if (!node.isUp) return 'down';
  return pool.isLagging(node) ? 'lagging' : 'up';
}

const rounded = (value: number) => Math.round(value * 100) / 100;
