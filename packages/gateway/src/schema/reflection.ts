import { fromBinary } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type DescriptorProto,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError, type MessageStream } from '@sibyl/grpc-client';
import { bytesFields, messageAt } from '../upstream/abci-upstream.js';
import type { Upstream } from '../upstream/upstream.js';

const VERSIONS = ['v1alpha', 'v1'];
const TIMEOUT_MS = 10_000;
/** The limit on replies of a node is for those that clients receive. */
export const MAX_DESCRIPTOR_BYTES = 64 * 1024 * 1024;
/** More than any chain has. */
const MAX_FILES = 5000;

/** Field numbers of ServerReflectionRequest and ServerReflectionResponse. */
const REQUEST_FIELDS = { fileByName: 3, fileOfSymbol: 4, services: 7 } as const;
const REPLY_FIELDS = { files: 4, services: 6, error: 7 } as const;

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

/** gRPC server reflection of one node. */
export class ServerReflection {
  private readonly streams = new Set<MessageStream>();
  private shared: Promise<MessageStream> | undefined;

  private constructor(private readonly openStream: () => Promise<MessageStream>) {}

  /** Uses the reflection of a node, if it has one; undefined otherwise. */
  static async use<T>(
    upstream: Upstream,
    use: (reflection: ServerReflection) => Promise<T>,
  ): Promise<T | undefined> {
    if (!upstream.open) return undefined;
    for (const version of VERSIONS) {
      const method = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
      const reflection = new ServerReflection(async () => {
        const call = { timeoutMs: TIMEOUT_MS, maxReplyBytes: MAX_DESCRIPTOR_BYTES };
        const stream = await upstream.open?.(method, call);
        if (!stream) throw new GrpcError(GrpcCode.unimplemented, 'the node has no streams');
        return stream;
      });
      try {
        return await use(reflection);
      } catch (error) {
        if (!(error instanceof GrpcError) || error.code !== GrpcCode.unimplemented) throw error;
      } finally {
        for (const stream of reflection.streams) stream.close();
      }
    }
    return undefined;
  }

  /** Full names of the services the server implements. */
  async listServices(): Promise<ReadonlySet<string>> {
    const answer = await this.request(REQUEST_FIELDS.services, '*');
    const [error] = bytesFields(answer, REPLY_FIELDS.error);
    if (error) throw new GrpcError(GrpcCode.unimplemented, text(messageAt(error, [2])));
    const services = bytesFields(messageAt(answer, [REPLY_FIELDS.services]), 1);
    return new Set(services.map((service) => text(messageAt(service, [1]))));
  }

  /** The files that declare the symbols, with all their imports; those the server does not find are left out. */
  async readFiles(symbols: Iterable<string>): Promise<Uint8Array[]> {
    const files = new Map<string, Uint8Array>();
    const wanted = new Set<string>();
    const add = (found: readonly Uint8Array[]) => {
      for (const file of found) {
        const { name, dependency } = fromBinary(FileDescriptorProtoSchema, file);
        if (!files.has(name)) files.set(name, file);
        for (const imported of dependency) wanted.add(imported);
      }
      if (files.size > MAX_FILES)
        throw new GrpcError(GrpcCode.internal, 'reflection returned too many files');
    };
    const { fileOfSymbol, fileByName } = REQUEST_FIELDS;
    const found = await Promise.all([...symbols].map((name) => this.find(fileOfSymbol, name)));
    add(found.flat());
    const asked = new Set<string>();
    for (;;) {
      const missing = [...wanted].filter((name) => !files.has(name) && !asked.has(name));
      if (missing.length === 0) return [...files.values()];
      for (const name of missing) asked.add(name);
      add((await Promise.all(missing.map((name) => this.find(fileByName, name)))).flat());
    }
  }

  /** The files of an answer; none if the server does not know the name. */
  private async find(field: number, name: string): Promise<Uint8Array[]> {
    const answer = await this.request(field, name);
    return bytesFields(messageAt(answer, [REPLY_FIELDS.files]), 1);
  }

  /** All requests share a stream, unless the server ends it after the first answer, as some do. */
  private async request(field: number, value: string): Promise<Uint8Array> {
    const request = new BinaryWriter().tag(field, WireType.LengthDelimited).string(value).finish();
    this.shared ??= this.open();
    const stream = await this.shared;
    try {
      return await stream.send(request);
    } catch (error) {
      if (!(error instanceof GrpcError) || error.code !== GrpcCode.internal) throw error;
      return (await this.open()).send(request);
    }
  }

  private async open(): Promise<MessageStream> {
    const stream = await this.openStream();
    this.streams.add(stream);
    return stream;
  }
}

interface Fitting {
  readonly fitting: readonly FileDescriptorProto[];
  /** Log messages about files that do not fit. */
  readonly notices: readonly string[];
}

/**
 * Of other files, selects those that can be added to the given ones: they declare nothing again, and all types they
 * refer to are declared. Versions of a library differ, so a file may refer to a type that only its own version has.
 */
export function selectFitting(
  given: readonly FileDescriptorProto[],
  others: readonly FileDescriptorProto[],
): Fitting {
  const names = new Set(given.map(({ name }) => name));
  const declared = new Set(given.flatMap(listDeclared));
  const notices: string[] = [];
  const candidates = others.filter((file) => {
    if (names.has(file.name)) return false;
    const again = listDeclared(file).find((name) => declared.has(name));
    if (again) notices.push(`${file.name} is not used: it declares ${again} again`);
    return !again;
  });
  const unfit = findIncomplete(candidates, declared);
  for (const [file, missing] of unfit)
    notices.push(`${file.name} is not used: ${missing} is not declared`);
  return { fitting: candidates.filter((file) => !unfit.has(file)), notices };
}

/** The files that refer to undeclared types, directly or through such files, with the first of these types. */
function findIncomplete(
  files: readonly FileDescriptorProto[],
  declared: ReadonlySet<string>,
): ReadonlyMap<FileDescriptorProto, string> {
  const declarations = countNames(files.flatMap(listDeclared));
  const users = groupByReference(files);
  const unfit = new Map<FileDescriptorProto, string>();
  const drop = (missing: string) => {
    for (const file of users.get(missing) ?? []) if (!unfit.has(file)) unfit.set(file, missing);
  };
  for (const name of users.keys()) if (!declared.has(name) && !declarations.has(name)) drop(name);
  // Grows while it is iterated over.
  for (const name of declaredBy(unfit)) {
    const left = (declarations.get(name) ?? 0) - 1;
    declarations.set(name, left);
    if (left === 0) drop(name);
  }
  return unfit;
}

function countNames(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function groupByReference(files: readonly FileDescriptorProto[]) {
  const users = new Map<string, FileDescriptorProto[]>();
  for (const file of files) {
    for (const name of new Set(listReferences(file))) {
      const known = users.get(name);
      if (known) known.push(file);
      else users.set(name, [file]);
    }
  }
  return users;
}

function* declaredBy(files: ReadonlyMap<FileDescriptorProto, unknown>): Generator<string> {
  for (const file of files.keys()) yield* listDeclared(file);
}

/** Full names of the messages, enums and services of a file. */
function listDeclared(file: FileDescriptorProto): string[] {
  const prefix = file.package === '' ? '' : `${file.package}.`;
  return [
    ...file.messageType.flatMap((message) => listNested(message, prefix)),
    ...[...file.enumType, ...file.service].map(({ name }) => prefix + name),
  ];
}

function listNested(message: DescriptorProto, prefix: string): string[] {
  const name = prefix + message.name;
  return [
    name,
    ...message.nestedType.flatMap((nested) => listNested(nested, `${name}.`)),
    ...message.enumType.map((nested) => `${name}.${nested.name}`),
  ];
}

/** Full names of the types that a file refers to. */
function listReferences(file: FileDescriptorProto): string[] {
  const ofMessage = (message: DescriptorProto): string[] => [
    ...message.field.map(({ typeName }) => typeName),
    ...message.extension.flatMap(({ typeName, extendee }) => [typeName, extendee]),
    ...message.nestedType.flatMap(ofMessage),
  ];
  return [
    ...file.messageType.flatMap(ofMessage),
    ...file.extension.flatMap(({ typeName, extendee }) => [typeName, extendee]),
    ...file.service.flatMap(({ method }) =>
      method.flatMap((one) => [one.inputType, one.outputType]),
    ),
  ].flatMap((name) => (name === '' ? [] : [name.replace(/^\./, '')]));
}
