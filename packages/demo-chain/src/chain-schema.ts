import { gunzipSync } from 'node:zlib';
import {
  createFileRegistry,
  type FileRegistry,
  fromBinary,
  fromJson,
  isMessage,
  type JsonObject,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import { AnySchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { COMPILED_PROTOS } from './compiled-protos.js';

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
