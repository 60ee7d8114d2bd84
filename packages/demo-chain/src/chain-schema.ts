import { gunzipSync } from 'node:zlib';
import {
  createFileRegistry,
  type DescFile,
  type FileRegistry,
  fromBinary,
  fromJson,
  isMessage,
  type JsonObject,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import {
  AnySchema,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from '@bufbuild/protobuf/wkt';
import { GrpcCode } from '@sibyl/grpc-client';
import { COMPILED_PROTOS } from './compiled-protos.js';
import type { MessageHandler } from './grpc-server.js';

/** The files of a chain, and its messages as JSON with proto names. */
export interface ChainSchema {
  readonly registry: FileRegistry;
  encode(type: string, message: JsonObject): Uint8Array;
  decode(type: string, bytes: Uint8Array): JsonObject;
}

/** The bytes of the FileDescriptorSet compiled from proto/. */
export function readCompiledProtos(): Uint8Array {
  return gunzipSync(Buffer.from(COMPILED_PROTOS, 'base64'));
}

/** The schema of the demo chain, or of another FileDescriptorSet. */
export function loadChainSchema(files: Uint8Array = readCompiledProtos()): ChainSchema {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, files));
  const getDescriptor = (type: string) => {
    const descriptor = registry.getMessage(type);
    if (!descriptor) throw new Error(`The schema has no message ${type}`);
    return descriptor;
  };
  return {
    registry,
    encode(type, message) {
      const descriptor = getDescriptor(type);
      const built = fromJson(descriptor, message, { registry });
      shortenTypeUrls(built);
      return toBinary(descriptor, built);
    },
    decode(type, bytes) {
      const descriptor = getDescriptor(type);
      const message = fromBinary(descriptor, bytes);
      return toJson(descriptor, message, { registry, useProtoFieldName: true }) as JsonObject;
    },
  };
}

/** Chains write the type of an Any as a slash and its name; protobuf puts a host before the slash. */
function shortenTypeUrls(value: unknown): void {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return;
  if (isMessage(value, AnySchema)) value.typeUrl = value.typeUrl.replace(/^[^/]+/, '');
  for (const inner of Object.values(value)) shortenTypeUrls(inner);
}

/** The method that returns the whole schema in one call. */
export const FILE_DESCRIPTORS = 'cosmos.reflection.v1.ReflectionService/FileDescriptors';

/** The reply of `FILE_DESCRIPTORS`; nodes sort the files by name, not by imports. */
export function fileDescriptorsReply({ registry }: ChainSchema): Uint8Array {
  const files = [...registry.files].map(({ proto }) => proto);
  // A FileDescriptorSet has the same one field as the reply.
  return toBinary(FileDescriptorSetSchema, {
    $typeName: 'google.protobuf.FileDescriptorSet',
    file: files.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
  });
}

/** gRPC server reflection in both its versions; it lists the services that are served, not all that are declared. */
export function reflectionStreams(
  schema: ChainSchema,
  services: readonly string[],
): Record<string, MessageHandler> {
  return Object.fromEntries(
    (['v1', 'v1alpha'] as const).map((version) => [
      `grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
      (message) => {
        const request = schema.decode(
          `grpc.reflection.${version}.ServerReflectionRequest`,
          message,
        );
        const reply = handleReflection(schema, request, { services, version });
        const answer = { valid_host: request.host ?? '', original_request: request, ...reply };
        return schema.encode(`grpc.reflection.${version}.ServerReflectionResponse`, answer);
      },
    ]),
  );
}

interface Reflected {
  readonly services: readonly string[];
  readonly version: 'v1' | 'v1alpha';
}

function handleReflection(
  schema: ChainSchema,
  request: JsonObject,
  { services, version }: Reflected,
): JsonObject {
  if ('list_services' in request) {
    return { list_services_response: { service: services.map((name) => ({ name })) } };
  }
  if ('all_extension_numbers_of_type' in request) {
    const type = String(request.all_extension_numbers_of_type);
    const numbers = listExtensions(schema, type).map(({ number }) => number);
    if (numbers.length === 0) return notFound(type);
    return { all_extension_numbers_response: { base_type_name: type, extension_number: numbers } };
  }
  const file = findFile(schema, request);
  if (!file) return notFound(JSON.stringify(request));
  // Some servers add the imports of a file, others do not.
  const files = version === 'v1' ? withImports(file) : [file];
  return { file_descriptor_response: { file_descriptor_proto: files.map(encodeFile) } };
}

function findFile(schema: ChainSchema, request: JsonObject): DescFile | undefined {
  const { file_by_filename: name, file_containing_symbol: symbol } = request;
  if (typeof name === 'string') return schema.registry.getFile(name);
  if (typeof symbol === 'string') return findSymbolFile(schema, symbol);
  const { containing_type: type, extension_number: number } =
    (request.file_containing_extension as JsonObject | undefined) ?? {};
  return listExtensions(schema, String(type)).find((extension) => extension.number === number)
    ?.file;
}

/** The file of a type, a service, or a method of a service. */
function findSymbolFile({ registry }: ChainSchema, symbol: string): DescFile | undefined {
  const found = registry.get(symbol) ?? registry.getService(symbol.replace(/\.[^.]+$/, ''));
  return found?.file;
}

function listExtensions({ registry }: ChainSchema, type: string) {
  return [...registry]
    .filter((desc) => desc.kind === 'extension')
    .filter(({ extendee }) => extendee.typeName === type);
}

function withImports(file: DescFile, found = new Set<DescFile>()): DescFile[] {
  if (!found.has(file)) {
    found.add(file);
    for (const imported of file.dependencies) withImports(imported, found);
  }
  return [...found];
}

function encodeFile({ proto }: DescFile): string {
  return Buffer.from(toBinary(FileDescriptorProtoSchema, proto)).toString('base64');
}

function notFound(what: string): JsonObject {
  return { error_response: { error_code: GrpcCode.notFound, error_message: `not found: ${what}` } };
}
