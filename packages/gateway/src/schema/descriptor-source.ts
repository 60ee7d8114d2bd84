import { readFile } from 'node:fs/promises';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { Upstream } from '../upstream/upstream.js';
import { messageAt } from '../upstream/wire-fields.js';
import { ServerReflection } from './reflection.js';

const FILE_DESCRIPTORS = '/cosmos.reflection.v1.ReflectionService/FileDescriptors';
const DESCRIPTORS_TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1024 * 1024;

type DescriptorBytes = Uint8Array | readonly Uint8Array[];

/** A chain's descriptors and their source. */
export interface ChainDescriptors {
  readonly source:
    | 'file'
    | 'server and chain reflection'
    | 'chain reflection'
    | 'server reflection';
  /** One FileDescriptorSet, or its files one by one. */
  readonly files: DescriptorBytes;
  /** Files for types that the others do not declare; those that do not fit to the others are not used. */
  readonly others?: Uint8Array | undefined;
  /** The services the node serves, if it reports them. */
  readonly served: ReadonlySet<string> | undefined;
}

/**
 * Reads a node's descriptors. Chain reflection declares every type, but in the version of a library that may differ from
 * the node's own; server reflection declares what the node serves, and only that.
 */
export async function fetchDescriptors(
  upstream: Upstream,
  file: string | undefined,
): Promise<ChainDescriptors> {
  if (file !== undefined) {
    const served = await ServerReflection.use(upstream, (server) => server.listServices()).catch(
      () => undefined,
    );
    return { source: 'file', files: await readFile(file), served };
  }
  const [server, chain] = await Promise.all([readServer(upstream), callChainReflection(upstream)]);
  if (server) {
    const source = chain ? 'server and chain reflection' : 'server reflection';
    return { source, ...server, others: chain };
  }
  if (chain) return { source: 'chain reflection', files: chain, served: undefined };
  const text = 'the node has no reflection: set GATEWAY_DESCRIPTORS to a file with its descriptors';
  throw new GrpcError(GrpcCode.unimplemented, text);
}

/** The services the node serves, and the files that declare them. */
function readServer(upstream: Upstream) {
  return ServerReflection.use(upstream, async (server) => {
    const served = await server.listServices();
    return { served, files: await server.readFiles(served) };
  });
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
