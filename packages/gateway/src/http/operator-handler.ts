import type { IncomingMessage, ServerResponse } from 'node:http';
import { QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { operatorRoutes } from './own-routes.js';
import { sendFault } from './send-json.js';

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
