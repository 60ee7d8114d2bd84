import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js';
import { LOCALHOST_TLS } from './localhost-tls.js';

export interface GrpcJsReply {
  readonly message: Buffer;
  readonly headers: Record<string, unknown>;
}

/** A third-party client that tests our servers. */
export function createGrpcJsClient(url: string): Client {
  const { protocol, host } = new URL(url);
  if (protocol === 'grpc:') return new Client(host, credentials.createInsecure());
  const trusting = credentials.createSsl(Buffer.from(LOCALHOST_TLS.cert));
  return new Client(host, trusting, { 'grpc.ssl_target_name_override': 'localhost' });
}

/** Calls a unary method with an encoded message; rejects with the `ServiceError` of grpc-js. */
export function callByGrpcJs(
  client: Client,
  method: string,
  request: Uint8Array,
  metadata: Readonly<Record<string, string>> = {},
): Promise<GrpcJsReply> {
  const sent = new Metadata();
  for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
  const identity = (bytes: Buffer) => bytes;
  return new Promise((resolve, reject) => {
    let headers: Record<string, unknown> = {};
    const onReply = (error: ServiceError | null, message?: Buffer) => {
      if (message) resolve({ message, headers });
      else reject(error);
    };
    client
      .makeUnaryRequest(`/${method}`, identity, identity, Buffer.from(request), sent, onReply)
      .on('metadata', (received) => {
        headers = received.getMap();
      });
  });
}
