import type { IncomingMessage } from 'node:http';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Express } from 'express';
import type { Config } from '../config/config.js';
import { SocketServer } from '../transport/socket/socket-server.js';
import type { HostParts } from './host-parts.js';
import { corsOptions } from './use-middlewares.js';

/** Serves sockets on the same port as the routes. */
export function serveSockets(
  nest: NestExpressApplication,
  { store, rateLimits, ...parts }: HostParts,
  config: Config,
): SocketServer {
  const express: Express = nest.getHttpAdapter().getInstance();
  return new SocketServer(nest.getHttpServer(), {
    ...parts,
    sessions: store.sessions,
    limits: rateLimits,
    config,
    stallMs: config.turns.streamStallMs,
    cors: corsOptions(config.corsOrigins),
    clientAddress: (request) => clientAddress(express, request),
  });
}

/** As Express tells it, which knows the proxies to see through. */
function clientAddress(express: Express, { headers, socket }: IncomingMessage): string | undefined {
  return Object.assign(Object.create(express.request), { headers, socket }).ip;
}
