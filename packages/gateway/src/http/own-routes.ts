import { gaugesOf } from '../observe/gauges.js';
import { healthOf } from '../observe/health.js';
import { QueryFault } from '../query/query-fault.js';
import { openApiOf, type Schema } from '../schema.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import type { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { sendJson } from './send-json.js';

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

const ENTRANCE = {
  name: 'Sibyl protocol query gateway',
  docs: '/docs',
  routes: '/routes',
  health: '/health',
};

function serveHealth(exchange: Exchange, parts: GatewayParts): void {
  const health = healthOf(parts);
  const isServing = health.status === 'ok' || health.status === 'degraded';
  sendJson(exchange, isServing ? 200 : 503, health);
}

function serveRoutes(exchange: Exchange, { keeper }: GatewayParts): void {
  const schemas = keeper.groups.map(({ schema, source, nodes }) => ({
    fingerprint: schema.fingerprint,
    source,
    nodes: nodes.map(({ name }) => name),
    routes: schema.routes.map((route) => ({
      method: route.httpMethod,
      path: route.template,
      rpc: route.grpcMethod,
      summary: route.summary,
      isServed: route.isServed && !route.isWrite,
    })),
  }));
  sendJson(exchange, 200, { schemas });
}

const documents = new WeakMap<Schema, Record<string, unknown>>();

function serveOpenApi(exchange: Exchange, { keeper }: GatewayParts): void {
  const wanted = exchange.query.get('schema');
  const group = keeper.groups.find(
    ({ schema }) => wanted === null || schema.fingerprint === wanted,
  );
  if (!group) throw new QueryFault(GrpcCode.notFound, 'no such schema is known now; see /routes');
  const { schema } = group;
  const info = { title: 'Chain queries', version: schema.fingerprint.slice(0, 12) };
  const document = documents.get(schema) ?? openApiOf(schema, info);
  documents.set(schema, document);
  sendJson(exchange, 200, document);
}

function serveMetrics(exchange: Exchange, parts: GatewayParts): void {
  const { metrics, pool, answers, watches } = parts;
  const gauges = gaugesOf({ pool, cache: answers.cache, watchers: watches.size });
  const headers = { 'Content-Type': 'text/plain; version=0.0.4' };
  exchange.send(200, headers, Buffer.from(metrics.print(gauges)));
}
