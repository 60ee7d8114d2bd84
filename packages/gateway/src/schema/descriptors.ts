import { createHash } from 'node:crypto';
import {
  create,
  createFileRegistry,
  type DescFile,
  type FileRegistry,
  fromBinary,
} from '@bufbuild/protobuf';
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  file_google_protobuf_any,
  file_google_protobuf_descriptor,
  file_google_protobuf_duration,
  file_google_protobuf_empty,
  file_google_protobuf_field_mask,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_google_protobuf_wrappers,
} from '@bufbuild/protobuf/wkt';

/** The declarations of a chain, with its files in the given order. */
export interface Descriptors {
  readonly registry: FileRegistry;
  readonly files: readonly DescFile[];
  /** Log messages about missing imports. */
  readonly notices: readonly string[];
  readonly fingerprint: string;
}

/** Files that ship with every compiler, so senders often omit them. */
const STANDARD_FILES = [
  file_google_protobuf_any,
  file_google_protobuf_descriptor,
  file_google_protobuf_duration,
  file_google_protobuf_empty,
  file_google_protobuf_field_mask,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_google_protobuf_wrappers,
].map((file) => file.proto);

/** Reads one `FileDescriptorSet`, or a list of single `FileDescriptorProto`s, in any order. */
export function readDescriptors(bytes: Uint8Array | readonly Uint8Array[]): Descriptors {
  const given = parse(bytes);
  if (given.length === 0) throw new DescriptorError('The descriptors contain no file');
  const files = new Map<string, FileDescriptorProto>();
  for (const file of [...given, ...STANDARD_FILES])
    if (!files.has(file.name)) files.set(file.name, file);
  const notices = dropMissingImports(files);
  const registry = register(sortByImports(files));
  const names = new Set(given.map((file) => file.name));
  const inOrder = [...names].flatMap((name) => registry.getFile(name) ?? []);
  return { registry, files: inOrder, notices, fingerprint: computeFingerprint(bytes) };
}

function parse(bytes: Uint8Array | readonly Uint8Array[]): FileDescriptorProto[] {
  try {
    if (bytes instanceof Uint8Array) return fromBinary(FileDescriptorSetSchema, bytes).file;
    return bytes.map((file) => fromBinary(FileDescriptorProtoSchema, file));
  } catch (cause) {
    throw new DescriptorError(`Cannot parse the descriptors: ${getReason(cause)}`, { cause });
  }
}

function computeFingerprint(bytes: Uint8Array | readonly Uint8Array[]): string {
  const hash = createHash('sha256');
  for (const part of bytes instanceof Uint8Array ? [bytes] : bytes) hash.update(part);
  return hash.digest('hex');
}

/** Drops missing imports: most only define options, which are read without them; a missing type fails later. */
function dropMissingImports(files: ReadonlyMap<string, FileDescriptorProto>): string[] {
  const notices: string[] = [];
  for (const file of files.values()) {
    const missing = file.dependency.filter((name) => !files.has(name));
    if (missing.length === 0) continue;
    notices.push(
      `${file.name} imports ${missing.join(', ')}, which the descriptors do not include`,
    );
    file.dependency = file.dependency.filter((name) => files.has(name));
  }
  return notices;
}

function register(file: FileDescriptorProto[]): FileRegistry {
  try {
    return createFileRegistry(create(FileDescriptorSetSchema, { file }));
  } catch (cause) {
    throw new DescriptorError(`The descriptors are incomplete: ${getReason(cause)}`, { cause });
  }
}

function getReason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Sorts files after their imports, otherwise keeping the order. */
export function sortByImports(files: ReadonlyMap<string, FileDescriptorProto>) {
  const sorted: FileDescriptorProto[] = [];
  const state = new Map<string, 'open' | 'done'>();
  const visit = (file: FileDescriptorProto): void => {
    if (state.get(file.name) === 'done') return;
    if (state.get(file.name) === 'open')
      throw new DescriptorError(`${file.name} imports itself, directly or indirectly`);
    state.set(file.name, 'open');
    for (const name of file.dependency) {
      const imported = files.get(name);
      if (imported) visit(imported);
    }
    state.set(file.name, 'done');
    sorted.push(file);
  };
  for (const file of files.values()) visit(file);
  return sorted;
}

/** The descriptors are unreadable or incomplete; the message names the file. */
export class DescriptorError extends Error {
  override readonly name = 'DescriptorError';
}
