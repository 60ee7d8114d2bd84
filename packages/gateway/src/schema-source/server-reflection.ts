import { fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError } from '../upstream/grpc-error.js';
import type { MessageExchange, Upstream } from '../upstream/upstream.js';
import { bytesFields, messageAt } from '../upstream/wire-fields.js';

const VERSIONS = ['v1', 'v1alpha'];
const TIMEOUT_MS = 10_000;
/** More files than this no chain has. */
const MAX_FILES = 5000;

/** Field numbers of ServerReflectionRequest and ServerReflectionResponse. */
const ASK = { fileByName: 3, fileOfSymbol: 4, services: 7 } as const;
const TOLD = { files: 4, services: 6, error: 7 } as const;

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

/** Asks a server by gRPC reflection; undefined if it has none. */
export async function withReflection<T>(
  upstream: Upstream,
  use: (exchange: MessageExchange) => Promise<T>,
): Promise<T | undefined> {
  for (const version of VERSIONS) {
    const method = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    const exchange = await upstream.open?.(method, TIMEOUT_MS);
    try {
      if (exchange) return await use(exchange);
    } catch (fault) {
      if (!isUnimplemented(fault)) throw fault;
    } finally {
      exchange?.close();
    }
  }
  return undefined;
}

/** Full names of the services this very binary serves. */
export async function readServices(exchange: MessageExchange): Promise<ReadonlySet<string>> {
  const answer = await ask(exchange, ASK.services, '*');
  const services = bytesFields(messageAt(answer, [TOLD.services]), 1);
  return new Set(services.map((service) => text(messageAt(service, [1]))));
}

/** The files that declare the services and all that those files need. */
export async function readFiles(
  exchange: MessageExchange,
  services: Iterable<string>,
): Promise<Uint8Array[]> {
  const files = new Map<string, Uint8Array>();
  const wanted: string[] = [];
  const keep = (answer: Uint8Array) => {
    for (const file of bytesFields(messageAt(answer, [TOLD.files]), 1)) {
      const { name, dependency } = fromBinary(FileDescriptorProtoSchema, file);
      if (files.has(name)) continue;
      files.set(name, file);
      wanted.push(...dependency);
    }
  };
  for (const service of services) keep(await ask(exchange, ASK.fileOfSymbol, service));
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    if (files.size > MAX_FILES) throw new GrpcError(GrpcCode.internal, 'reflection has no end');
    if (!files.has(name)) keep(await ask(exchange, ASK.fileByName, name));
  }
  return [...files.values()];
}

async function ask(exchange: MessageExchange, field: number, value: string): Promise<Uint8Array> {
  const request = new BinaryWriter().tag(field, WireType.LengthDelimited).string(value).finish();
  const answer = await exchange.ask(request);
  const [error] = bytesFields(answer, TOLD.error);
  if (!error) return answer;
  throw new GrpcError(GrpcCode.notFound, `reflection of ${value}: ${text(messageAt(error, [2]))}`);
}

function isUnimplemented(fault: unknown): boolean {
  return fault instanceof GrpcError && fault.code === GrpcCode.unimplemented;
}
