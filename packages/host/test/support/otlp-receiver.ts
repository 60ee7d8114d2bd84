import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A span as a collector receives it. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string;
  readonly name: string;
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly ms: number;
  /** The `service.instance.id` of the sender. */
  readonly host: string;
}

export interface OtlpReceiver {
  readonly url: string;
  readonly spans: readonly ReceivedSpan[];
  close(): void;
}

/** Receives spans over OTLP/HTTP with protobuf, as collectors do. */
export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const server = createServer(async (request, response) => {
    const isTraces = request.url === '/v1/traces' && request.method === 'POST';
    const body = await buffer(request);
    if (isTraces && request.headers['content-type'] === 'application/x-protobuf')
      spans.push(...readExport(body));
    response.writeHead(isTraces ? 200 : 404, { 'content-type': 'application/x-protobuf' }).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

type Field = number | Buffer;

/** The fields of a protobuf message, by number. */
function decode(bytes: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>();
  let at = 0;
  const readVarint = () => {
    let value = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
  };
  const readValue = (type: number): Field => {
    if (type === 0) return readVarint();
    const length = type === 2 ? readVarint() : type === 1 ? 8 : 4;
    at += length;
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const tag = readVarint();
    const values = fields.get(tag >> 3) ?? [];
    fields.set(tag >> 3, values);
    values.push(readValue(tag & 7));
  }
  return fields;
}

const listMessages = (bytes: Buffer, field: number) =>
  (decode(bytes).get(field) ?? []) as readonly Buffer[];

function readExport(bytes: Buffer): ReceivedSpan[] {
  return listMessages(bytes, 1).flatMap((resourceSpans) => {
    const [resource = Buffer.alloc(0)] = listMessages(resourceSpans, 1);
    const host = String(readAttributes(resource, 1)['service.instance.id']);
    const scopes = listMessages(resourceSpans, 2);
    return scopes.flatMap((scope) => listMessages(scope, 2).map((span) => readSpan(span, host)));
  });
}

function readSpan(bytes: Buffer, host: string): ReceivedSpan {
  const fields = decode(bytes);
  const read = (field: number) => (fields.get(field)?.[0] ?? Buffer.alloc(0)) as Buffer;
  return {
    traceId: read(1).toString('hex'),
    spanId: read(2).toString('hex'),
    parentId: read(4).toString('hex'),
    name: read(5).toString(),
    attributes: readAttributes(bytes, 9),
    ms: Number(read(8).readBigUInt64LE() - read(7).readBigUInt64LE()) / 1e6,
    host,
  };
}

function readAttributes(bytes: Buffer, field: number): Record<string, string | number> {
  const pairs = listMessages(bytes, field).map((pair) => {
    const [key = Buffer.alloc(0)] = listMessages(pair, 1);
    const [value = Buffer.alloc(0)] = listMessages(pair, 2);
    const any = decode(value);
    const [text] = any.get(1) ?? [];
    const [number] = any.get(3) ?? [];
    return [key.toString(), text === undefined ? number : text.toString()] as const;
  });
  return Object.fromEntries(pairs.map(([key, value]) => [key, value as string | number]));
}
