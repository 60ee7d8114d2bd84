import { createFileRegistry, type DescMessage, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { compileProtos } from '../../packages/demo-chain/scripts/compile-protos.ts';

/** The protos of the chain as a FileDescriptorSet. */
export const chainFiles: Uint8Array = compileProtos();

export const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, chainFiles));

export function messageOf(type: string): DescMessage {
  const message = registry.getMessage(type);
  if (!message) throw new Error(`The protos have no ${type}`);
  return message;
}
