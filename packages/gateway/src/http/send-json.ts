import type { QueryFault } from '../query/query-fault.js';
import type { Exchange } from './exchange.js';

/** Sends something of the gateway's own, never to be kept by caches. */
export function sendJson(exchange: Exchange, status: number, value: object): void {
  sendJsonText(exchange, status, Buffer.from(JSON.stringify(value)));
}

/** Sends JSON that was written before. */
export function sendJsonText(exchange: Exchange, status: number, body: Buffer): void {
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': body.length,
    'Cache-Control': 'no-store',
  };
  exchange.send(status, headers, body);
}

/** Sends a fault as a node would say it. */
export function sendFault(exchange: Exchange, fault: QueryFault): void {
  Object.assign(exchange.headers, fault.headers);
  sendJson(exchange, fault.status, bodyOf(fault));
}

export function bodyOf({ code, message }: Pick<QueryFault, 'code' | 'message'>): object {
  return { code, message, details: [] };
}
