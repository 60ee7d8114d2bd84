import type { QueryFault } from '../query/query-fault.js';
import type { Exchange } from './exchange.js';

/** Sends something of the gateway's own, never to be kept by caches. */
export function sendJson({ response }: Exchange, status: number, value: object): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
  });
  response.end(body);
}

/** Sends a fault as a node would say it. */
export function sendFault(exchange: Exchange, fault: QueryFault): void {
  for (const [name, value] of Object.entries(fault.headers)) {
    exchange.response.setHeader(name, value);
  }
  sendJson(exchange, fault.status, bodyOf(fault));
}

export function bodyOf({ code, message }: Pick<QueryFault, 'code' | 'message'>): object {
  return { code, message, details: [] };
}
