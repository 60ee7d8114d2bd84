import { readFile } from 'node:fs/promises';
import { fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError, type MessageStream } from '@sibyl/grpc-client';
import type { Upstream } from '../upstream/upstream.js';
import { bytesFields, messageAt } from '../upstream/wire-fields.js';

const FILE_DESCRIPTORS = '/cosmos.reflection.v1.ReflectionService/FileDescriptors';
const DESCRIPTORS_TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** A chain's descriptors and their source. */
export interface ChainDescriptors {
  readonly source: 'file' | 'chain reflection' | 'server reflection';
  /** One FileDescriptorSet, or its files one by one. */
  readonly files: Uint8Array | readonly Uint8Array[];
  /** The services the node serves, if it reports them. */
  readonly served: ReadonlySet<string> | undefined;
}

/** Reads a node's descriptors from the operator's file, chain reflection or server reflection. */
export async function fetchDescriptors(
  upstream: Upstream,
  file: string | undefined,
): Promise<ChainDescriptors> {
  const served = await withReflection(upstream, readServices).catch(() => undefined);
  if (file !== undefined) return { source: 'file', files: await readFile(file), served };
  const whole = await callChainReflection(upstream);
  if (whole) return { source: 'chain reflection', files: whole, served };
  const files = await withReflection(upstream, async (stream) => {
    const services = await readServices(stream);
    return readFiles(stream, withoutReflection(services));
  });
  if (files) return { source: 'server reflection', files, served };
  const text = 'the node has no reflection: set GATEWAY_DESCRIPTORS to a file with its descriptors';
  throw new GrpcError(GrpcCode.unimplemented, text);
}

/** One call for the whole schema; its reply has the layout of a FileDescriptorSet. */
async function callChainReflection(upstream: Upstream): Promise<Uint8Array | undefined> {
  try {
    const call = { timeoutMs: DESCRIPTORS_TIMEOUT_MS, maxReplyBytes: MAX_BYTES };
    return (await upstream.call(FILE_DESCRIPTORS, new Uint8Array(), call)).message;
  } catch (error) {
    if (error instanceof GrpcError && error.code === GrpcCode.unimplemented) return undefined;
    throw error;
  }
}

/** Servers often lack the files of the reflection service itself. */
function withoutReflection(services: ReadonlySet<string>): string[] {
  return [...services].filter((name) => !name.startsWith('grpc.reflection.'));
}

const VERSIONS = ['v1', 'v1alpha'];
const REFLECTION_TIMEOUT_MS = 10_000;
/** More than any chain has. */
const MAX_FILES = 5000;

/** Field numbers of ServerReflectionRequest and ServerReflectionResponse. */
const REQUEST_FIELDS = { fileByName: 3, findSymbolFile: 4, services: 7 } as const;
const REPLY_FIELDS = { files: 4, services: 6, error: 7 } as const;

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

/** Opens gRPC server reflection; undefined if the server does not implement it. */
export async function withReflection<T>(
  upstream: Upstream,
  use: (stream: MessageStream) => Promise<T>,
): Promise<T | undefined> {
  for (const version of VERSIONS) {
    const method = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    const stream = await upstream.open?.(method, REFLECTION_TIMEOUT_MS);
    try {
      if (stream) return await use(stream);
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
    } finally {
      stream?.close();
    }
  }
  return undefined;
}

/** Full names of the services the server implements. */
export async function readServices(stream: MessageStream): Promise<ReadonlySet<string>> {
  const answer = await requestReflection(stream, REQUEST_FIELDS.services, '*');
  const services = bytesFields(messageAt(answer, [REPLY_FIELDS.services]), 1);
  return new Set(services.map((service) => text(messageAt(service, [1]))));
}

/** The files that declare the services, with all their imports. */
export async function readFiles(
  stream: MessageStream,
  services: Iterable<string>,
): Promise<Uint8Array[]> {
  const files = new Map<string, Uint8Array>();
  const wanted: string[] = [];
  const keep = (answer: Uint8Array) => {
    for (const file of bytesFields(messageAt(answer, [REPLY_FIELDS.files]), 1)) {
      const { name, dependency } = fromBinary(FileDescriptorProtoSchema, file);
      if (files.has(name)) continue;
      files.set(name, file);
      wanted.push(...dependency);
    }
  };
  for (const service of services)
    keep(await requestReflection(stream, REQUEST_FIELDS.findSymbolFile, service));
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    if (files.size > MAX_FILES)
      throw new GrpcError(GrpcCode.internal, 'reflection returned too many files');
    if (!files.has(name)) keep(await requestReflection(stream, REQUEST_FIELDS.fileByName, name));
  }
  return [...files.values()];
}

async function requestReflection(
  stream: MessageStream,
  field: number,
  value: string,
): Promise<Uint8Array> {
  const request = new BinaryWriter().tag(field, WireType.LengthDelimited).string(value).finish();
  const answer = await stream.send(request);
  const [error] = bytesFields(answer, REPLY_FIELDS.error);
  if (!error) return answer;
  throw new GrpcError(GrpcCode.notFound, `reflection of ${value}: ${text(messageAt(error, [2]))}`);
}

function isUnimplemented(error: unknown): boolean {
  return error instanceof GrpcError && error.code === GrpcCode.unimplemented;
}

const NODE_INFO = '/cosmos.base.tendermint.v1beta1.Service/GetNodeInfo';
const VERSION_TIMEOUT_MS = 5000;

/** The chain a node belongs to and the software it runs. */
export interface NodeVersion {
  readonly network: string;
  /** Changes when the software changes. */
  readonly build: string;
  readonly version: string;
}

/** Reads the version of a node; undefined if the node does not report it. */
export async function readNodeVersion(upstream: Upstream): Promise<NodeVersion | undefined> {
  try {
    const { message } = await upstream.call(NODE_INFO, new Uint8Array(), {
      timeoutMs: VERSION_TIMEOUT_MS,
    });
    const textAt = (path: readonly number[]) => Buffer.from(messageAt(message, path)).toString();
    // GetNodeInfoResponse: 1 default_node_info (4 network), 2 application_version (3 version).
    const build = Buffer.from(messageAt(message, [2])).toString('base64');
    return { network: textAt([1, 4]), version: textAt([2, 3]), build };
  } catch (error) {
    if (error instanceof GrpcError && error.code === GrpcCode.unimplemented) return undefined;
    throw error;
  }
}
