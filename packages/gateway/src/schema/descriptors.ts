import { createHash } from 'node:crypto';
import {
  create,
  createFileRegistry,
  type DescFile,
  type DescMessage,
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
import { correctVersions } from './descriptor-source.js';
import { selectFitting } from './reflection.js';

/** The declarations of a chain, with its files in the given order. */
export interface Descriptors {
  readonly registry: FileRegistry;
  /** Without those of other versions, which `registry` includes. */
  readonly exact: FileRegistry;
  readonly files: readonly DescFile[];
  /** Log messages about missing imports. */
  readonly notices: readonly string[];
  /** Log messages about files that cannot be used. */
  readonly warnings: readonly string[];
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

export type DescriptorBytes = Uint8Array | readonly Uint8Array[];

/**
 * Reads one `FileDescriptorSet`, or a list of single `FileDescriptorProto`s, in any order. Of `others`, files are used
 * that have another name and that fit to the first ones.
 */
export function readDescriptors(bytes: DescriptorBytes, others?: Uint8Array): Descriptors {
  const given = parse(bytes);
  correctVersions(given);
  if (given.length === 0) throw new DescriptorError('The descriptors contain no file');
  const further = others ? parse(others) : [];
  const { files, warnings } = selectComplete(given, further);
  const { fitting, notices: unfitting } = selectFitting([...files.values()], further);
  const all = new Map([...files, ...fitting.map((file) => [file.name, file] as const)]);
  const notices = [...unfitting, ...dropMissingImports(files), ...dropMissingImports(all)];
  const exact = register(sortByImports(files));
  const registry = extend(exact, sortByImports(all));
  const names = new Set([...given, ...fitting].map((file) => file.name));
  const inOrder = [...names].flatMap((name) => registry.getFile(name) ?? []);
  const fingerprint = computeFingerprint([bytes, others]);
  return { registry, exact, files: inOrder, notices, warnings, fingerprint };
}

/** The given files with the standard ones and what else they import, without those that refer to undeclared types. */
function selectComplete(
  given: readonly FileDescriptorProto[],
  others: readonly FileDescriptorProto[],
) {
  const files = new Map<string, FileDescriptorProto>();
  for (const file of [...given, ...STANDARD_FILES])
    if (!files.has(file.name)) files.set(file.name, file);
  const { fitting } = selectFitting([...files.values()], others);
  const found = new Map(fitting.map((file) => [file.name, file]));
  // Grows while it is iterated over.
  for (const { dependency } of files.values()) {
    for (const name of dependency) {
      const imported = files.get(name) ?? found.get(name);
      if (imported) files.set(name, imported);
    }
  }
  const { fitting: complete, notices: warnings } = selectFitting([], [...files.values()]);
  const kept = new Set(complete);
  if (!given.some((file) => kept.has(file)))
    throw new DescriptorError(`The descriptors are incomplete: ${warnings.join('; ')}`);
  return { files: new Map(complete.map((file) => [file.name, file])), warnings };
}

function parse(bytes: DescriptorBytes): FileDescriptorProto[] {
  try {
    if (bytes instanceof Uint8Array) return fromBinary(FileDescriptorSetSchema, bytes).file;
    return bytes.map((file) => fromBinary(FileDescriptorProtoSchema, file));
  } catch (cause) {
    throw new DescriptorError(`Cannot parse the descriptors: ${getReason(cause)}`, { cause });
  }
}

/** Equal for equal descriptors. */
export function computeFingerprint(all: readonly (DescriptorBytes | undefined)[]): string {
  const hash = createHash('sha256');
  for (const bytes of all) {
    for (const part of bytes instanceof Uint8Array ? [bytes] : (bytes ?? [])) hash.update(part);
    hash.update('\n');
  }
  return hash.digest('hex');
}

/** Drops missing imports: they only define options, which are read without them. */
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

/** Adds the files that a registry does not have; they are sorted after their imports. */
function extend(registry: FileRegistry, files: readonly FileDescriptorProto[]): FileRegistry {
  const added = new Map<string, FileRegistry>();
  const find = (name: string) => registry.getFile(name) ?? added.get(name)?.getFile(name);
  try {
    for (const file of files) {
      if (!find(file.name)) added.set(file.name, createFileRegistry(file, find));
    }
  } catch (cause) {
    throw new DescriptorError(`The descriptors are incomplete: ${getReason(cause)}`, { cause });
  }
  return added.size === 0 ? registry : createFileRegistry(registry, ...added.values());
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

/**
 * The message types of a chain. Some are not declared by what the node serves but occur inside an Any. They are looked
 * up when they are needed, since other sources may declare them in another version.
 */
export class TypeRegistry {
  private exact: FileRegistry;
  private readonly all: FileRegistry;
  private readonly settled = new Set<string>();

  constructor({ exact, registry }: Pick<Descriptors, 'exact' | 'registry'>) {
    this.exact = exact;
    this.all = registry;
  }

  /** Undefined if the type is not known, or has to be looked up first. */
  getMessage(typeName: string): DescMessage | undefined {
    const found = this.exact.getMessage(typeName);
    return found ?? (this.settled.has(typeName) ? this.all.getMessage(typeName) : undefined);
  }

  /** The type in any version. */
  findMessage(typeName: string): DescMessage | undefined {
    return this.getMessage(typeName) ?? this.all.getMessage(typeName);
  }

  /** Adds the files that were found for a type. Throws `DescriptorError`. */
  add(bytes: readonly Uint8Array[]): void {
    const known = [...this.exact.files].map(({ proto }) => proto);
    const files = new Map([...parse(bytes), ...known].map((file) => [file.name, file]));
    dropMissingImports(files);
    this.exact = extend(this.exact, sortByImports(files));
  }

  /** Uses any version of a type that was looked up in vain; returns whether there is one. */
  settle(typeName: string): boolean {
    if (this.all.getMessage(typeName)) this.settled.add(typeName);
    return this.settled.has(typeName);
  }
}

/** The descriptors are unreadable or incomplete; the message names the file. */
export class DescriptorError extends Error {
  override readonly name = 'DescriptorError';
}
