import {
  create,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonObject,
  type Message,
  toBinary,
} from '@bufbuild/protobuf';
import { Client, credentials } from '@grpc/grpc-js';
import { messageOf } from '../chain-files.ts';
import type { Query } from '../queries.ts';

export interface Called {
  readonly message: DescMessage;
  readonly reply: Message;
}

/** Calls a node by grpc-js, with messages of protobuf-es. */
export function createCaller(nodeUrl: string) {
  const client = new Client(new URL(nodeUrl).host, credentials.createInsecure());
  return (query: Query, request: JsonObject) =>
    new Promise<Called>((resolve, reject) => {
      const asked = messageOf(query.requestType);
      const message = messageOf(query.replyType);
      client.makeUnaryRequest(
        `/${query.method}`,
        (value: Message) => Buffer.from(toBinary(asked, value)),
        (bytes: Buffer) => fromBinary(message, bytes),
        fromJson(asked, request) ?? create(asked),
        (error, reply) => (reply ? resolve({ message, reply }) : reject(error)),
      );
    });
}
