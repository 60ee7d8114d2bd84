// What one would write with the usual parts: node:http, grpc-js and protobuf-es, in a process of its own.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toJsonString } from '@bufbuild/protobuf';
import { registry } from '../chain-files.ts';
import { createCaller } from '../load/grpc-js-caller.ts';
import { QUERIES, type Query } from '../queries.ts';

const call = createCaller(process.argv[2] ?? '');
const print = { registry, alwaysEmitImplicit: true, useProtoFieldName: true };
const routes = QUERIES.map((query) => ({ query, pattern: patternOf(query) }));

/** Matches every path of a query. */
function patternOf({ pathOf }: Query): RegExp {
  const [path = ''] = pathOf(0).split('?');
  return new RegExp(`^${path.replace(/did:[^/]+/, '[^/]+')}(\\?|$)`);
}

const server = createServer(async (request, response) => {
  const path = request.url ?? '';
  const query = routes.find(({ pattern }) => pattern.test(path))?.query;
  if (!query) return response.writeHead(404).end();
  const { message, reply } = await call(query, query.requestOf(path));
  const body = toJsonString(message, reply, print);
  response.writeHead(200, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
  return response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  process.send?.({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
// Whoever started it has gone.
process.once('disconnect', () => process.exit());
