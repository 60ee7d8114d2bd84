// A node in its own process: each method has one reply, encoded before the first call.
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { fromJson, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { chainFiles, findMessage, registry } from '../gateway/chain.ts';
import { QUERIES } from '../gateway/queries.ts';

const HEIGHT = '1000';
const REPLY_HEADERS = {
  ':status': 200,
  'content-type': 'application/grpc',
  'x-cosmos-block-height': HEIGHT,
};
const UNIMPLEMENTED = { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '12' };

const encode = (type: string, reply: JsonObject) => {
  const message = findMessage(type);
  return toBinary(message, fromJson(message, reply, { registry }));
};

function buildFrame(message: Uint8Array): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

const header = { chain_id: 'bench-1', height: HEIGHT, time: new Date().toISOString() };
const tendermint = 'cosmos.base.tendermint.v1beta1';
const replies: Record<string, Uint8Array> = {
  'cosmos.reflection.v1.ReflectionService/FileDescriptors': chainFiles,
  'cosmos.base.node.v1beta1.Service/Status': encode('cosmos.base.node.v1beta1.StatusResponse', {
    height: HEIGHT,
    earliest_store_height: '1',
    timestamp: header.time,
  }),
  [`${tendermint}.Service/GetLatestBlock`]: encode(`${tendermint}.GetLatestBlockResponse`, {
    block: { header },
    sdk_block: { header },
  }),
  [`${tendermint}.Service/GetSyncing`]: encode(`${tendermint}.GetSyncingResponse`, {}),
  [`${tendermint}.Service/GetNodeInfo`]: encode(`${tendermint}.GetNodeInfoResponse`, {
    application_version: { version: 'v1.0.0' },
  }),
  ...Object.fromEntries(
    QUERIES.map(({ method, replyType, reply }) => [method, encode(replyType, reply)]),
  ),
};
const frames = new Map(
  Object.entries(replies).map(([method, reply]) => [`/${method}`, buildFrame(reply)]),
);

const server = createServer();
server.on('stream', (stream, headers) => {
  const frame = frames.get(headers[':path'] ?? '');
  if (!frame) return stream.respond(UNIMPLEMENTED, { endStream: true });
  stream.on('error', () => {});
  stream.resume();
  stream.respond(REPLY_HEADERS, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
  stream.end(frame);
});
server.listen(0, '127.0.0.1', () => {
  process.send?.({ url: `grpc://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
// The benchmark has exited.
process.once('disconnect', () => process.exit());
