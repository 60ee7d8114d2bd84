import { gaugesOf } from '../observe/gauges.js';
import { describeNodes, summarizeHealth } from '../observe/health.js';
import { QueryFault } from '../query/query-fault.js';
import { openApiOf, type Schema } from '../schema.js';
import type { SchemaGroup } from '../schema-source/schema-keeper.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import type { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { sendJson, sendJsonText } from './send-json.js';

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
