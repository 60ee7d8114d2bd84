// A gateway of the usual libraries, node:http, grpc-js and protobuf-es, in its own process.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toJsonString } from '@bufbuild/protobuf';
import { createCaller, registry } from '../gateway/chain.ts';
import { QUERIES, type Query } from '../gateway/queries.ts';

const call = createCaller(process.argv[2] ?? '');
const print = { registry, alwaysEmitImplicit: true, useProtoFieldName: true };
const routes = QUERIES.map((query) => ({ query, pattern: buildPattern(query) }));

/** Matches every path of a query. */
function buildPattern({ buildPath }: Query): RegExp {
  const [path = ''] = buildPath(0).split('?');
  return new RegExp(`^${path.replace(/did:[^/]+/, '[^/]+')}(\\?|$)`);
}

const server = createServer(async (request, response) => {
  const path = request.url ?? '';
  const query = routes.find(({ pattern }) => pattern.test(path))?.query;
  if (!query) return response.writeHead(404).end();
  const { message, reply } = await call(query, query.parsePath(path));
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
// The benchmark has exited.
process.once('disconnect', () => process.exit());
