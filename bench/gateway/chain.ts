import { gunzipSync } from 'node:zlib';
import {
  create,
  createFileRegistry,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonObject,
  type Message,
  toBinary,
} from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { Client, credentials } from '@grpc/grpc-js';
import { COMPILED_PROTOS } from '../../packages/demo-chain/src/compiled-protos.ts';
import type { Query } from './queries.ts';

/** The protos of the chain as a FileDescriptorSet. */
export const chainFiles: Uint8Array = gunzipSync(Buffer.from(COMPILED_PROTOS, 'base64'));

export const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, chainFiles));

export function findMessage(type: string): DescMessage {
  const message = registry.getMessage(type);
  if (!message) throw new Error(`The protos do not define ${type}`);
  return message;
}

interface Reply {
  readonly message: DescMessage;
  readonly reply: Message;
}

/** Calls a node with grpc-js and protobuf-es. */
export function createCaller(nodeUrl: string) {
  const client = new Client(new URL(nodeUrl).host, credentials.createInsecure());
  return (query: Query, request: JsonObject) =>
    new Promise<Reply>((resolve, reject) => {
      const requestMessage = findMessage(query.requestType);
      const message = findMessage(query.replyType);
      client.makeUnaryRequest(
        `/${query.method}`,
        (value: Message) => Buffer.from(toBinary(requestMessage, value)),
        (bytes: Buffer) => fromBinary(message, bytes),
        fromJson(requestMessage, request) ?? create(requestMessage),
        (error, reply) => (reply ? resolve({ message, reply }) : reject(error)),
      );
    });
}
