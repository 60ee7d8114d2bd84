import { gunzipSync } from 'node:zlib';
import { createFileRegistry, type FileRegistry, fromBinary } from '@bufbuild/protobuf';
import { type FileDescriptorSet, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { COMPILED_PROTOS } from './compiled-protos.js';

/** What a server of these protos needs: the files as they were compiled, and a way to look into them. */
export interface ChainSchema {
  readonly files: FileDescriptorSet;
  readonly registry: FileRegistry;
}

/** The bytes of the FileDescriptorSet made from proto/. */
export function readCompiledProtos(): Uint8Array {
  return gunzipSync(Buffer.from(COMPILED_PROTOS, 'base64'));
}

/** The schema of the demo chain. */
export function loadChainSchema(): ChainSchema {
  const files = fromBinary(FileDescriptorSetSchema, readCompiledProtos());
  return { files, registry: createFileRegistry(files) };
}
