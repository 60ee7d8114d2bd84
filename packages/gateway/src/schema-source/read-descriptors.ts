import { readFile } from 'node:fs/promises';
import { GrpcCode, GrpcError } from '../upstream/grpc-error.js';
import type { Upstream } from '../upstream/upstream.js';
import { readFiles, readServices, withReflection } from './server-reflection.js';

const FILE_DESCRIPTORS = '/cosmos.reflection.v1.ReflectionService/FileDescriptors';
const TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** A chain's descriptors, and who told them. */
export interface Descriptors {
  readonly source: 'file' | 'chain reflection' | 'server reflection';
  /** One FileDescriptorSet, or its files one by one. */
  readonly files: Uint8Array | readonly Uint8Array[];
  /** What the node really serves, if it says. */
  readonly served: ReadonlySet<string> | undefined;
}

/** Reads a node's descriptors: from the operator's file, the chain's reflection or the server's. */
export async function readDescriptors(
  upstream: Upstream,
  file: string | undefined,
): Promise<Descriptors> {
  const served = await withReflection(upstream, readServices).catch(() => undefined);
  if (file !== undefined) return { source: 'file', files: await readFile(file), served };
  const whole = await chainReflection(upstream);
  if (whole) return { source: 'chain reflection', files: whole, served };
  const files = await withReflection(upstream, async (exchange) => {
    const services = await readServices(exchange);
    return readFiles(exchange, withoutReflection(services));
  });
  if (files) return { source: 'server reflection', files, served };
  const text = 'the node has no reflection: give its descriptors in GATEWAY_DESCRIPTORS';
  throw new GrpcError(GrpcCode.unimplemented, text);
}

/** One call for the whole schema; its reply has the layout of a FileDescriptorSet. */
async function chainReflection(upstream: Upstream): Promise<Uint8Array | undefined> {
  try {
    const call = { timeoutMs: TIMEOUT_MS, maxReplyBytes: MAX_BYTES };
    return (await upstream.call(FILE_DESCRIPTORS, new Uint8Array(), call)).message;
  } catch (fault) {
    if (fault instanceof GrpcError && fault.code === GrpcCode.unimplemented) return undefined;
    throw fault;
  }
}

/** Servers tend not to know the files of their own reflection. */
function withoutReflection(services: ReadonlySet<string>): string[] {
  return [...services].filter((name) => !name.startsWith('grpc.reflection.'));
}
