import { readFile } from 'node:fs/promises';
import { create, type UnknownField } from '@bufbuild/protobuf';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import {
  type FileDescriptorProto,
  MethodDescriptorProtoSchema,
  MethodOptionsSchema,
} from '@bufbuild/protobuf/wkt';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { messageAt } from '../upstream/abci-upstream.js';
import type { Upstream } from '../upstream/upstream.js';
import { MAX_DESCRIPTOR_BYTES, ServerReflection } from './reflection.js';

/**
 * Chain reflection, the only source over RPC, reports the files of a library that can be of a version no node was
 * released with. These are the differences to released nodes; files of server reflection have none of them.
 */
export function correctVersions(files: readonly FileDescriptorProto[]): void {
  for (const file of files) {
    if (file.package === 'cosmos.staking.v1beta1') dropHistoricalRecord(file);
    if (file.package === 'cosmos.bank.v1beta1') addOwnersByQuery(file);
  }
}

/** A field of an unreleased version, which would be printed as null. */
function dropHistoricalRecord(file: FileDescriptorProto): void {
  const reply = findMessage(file, 'QueryHistoricalInfoResponse');
  if (reply) reply.field = reply.field.filter(({ name }) => name !== 'historical_record');
}

const REQUEST = 'QueryDenomOwnersByQueryRequest';
const RESPONSE = 'QueryDenomOwnersByQueryResponse';

/** The method exists since SDK 0.50.4; a node without it answers 501. Its messages equal those of DenomOwners. */
function addOwnersByQuery(file: FileDescriptorProto): void {
  const query = file.service.find(({ name }) => name === 'Query');
  const isKnown = query?.method.some(({ name }) => name === 'DenomOwnersByQuery') ?? true;
  const request = copyMessage(file, 'QueryDenomOwnersRequest', REQUEST);
  const response = copyMessage(file, 'QueryDenomOwnersResponse', RESPONSE);
  if (isKnown || !request || !response) return;
  file.messageType.push(request, response);
  const options = create(MethodOptionsSchema);
  options.$unknown = [httpGet('/cosmos/bank/v1beta1/denom_owners_by_query')];
  query?.method.push(
    create(MethodDescriptorProtoSchema, {
      name: 'DenomOwnersByQuery',
      inputType: `.${file.package}.${REQUEST}`,
      outputType: `.${file.package}.${RESPONSE}`,
      options,
    }),
  );
}

function findMessage(file: FileDescriptorProto, name: string) {
  return file.messageType.find((message) => message.name === name);
}

function copyMessage(file: FileDescriptorProto, from: string, name: string) {
  const message = findMessage(file, from);
  return message && { ...message, name };
}

/** The extension `google.api.http` of method options; its field 2 is the path for GET. */
function httpGet(path: string): UnknownField {
  const rule = new BinaryWriter().tag(2, WireType.LengthDelimited).string(path).finish();
  const data = new BinaryWriter().bytes(rule).finish();
  return { no: 72295728, wireType: WireType.LengthDelimited, data };
}

const FILE_DESCRIPTORS = '/cosmos.reflection.v1.ReflectionService/FileDescriptors';
const DESCRIPTORS_TIMEOUT_MS = 10_000;

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
  /** Log messages about sources that the node refuses to be read. */
  readonly refusals?: readonly string[];
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
  const [server, chain] = await Promise.all([
    attempt(readServer(upstream)),
    attempt(callChainReflection(upstream)),
  ]);
  const errors = [server.refusal, chain.refusal].filter((error) => error !== undefined);
  const refusals = errors.map(({ message }) => `reflection is refused: ${message}`);
  // Some servers list services, but do not find the files that declare them.
  if (server.found && (server.found.files.length > 0 || !chain.found)) {
    const source = chain.found ? 'server and chain reflection' : 'server reflection';
    return { source, ...server.found, others: chain.found, refusals };
  }
  if (chain.found) {
    const served = server.found?.served.size ? server.found.served : undefined;
    return { source: 'chain reflection', files: chain.found, served, refusals };
  }
  const text = 'the node has no reflection: set GATEWAY_DESCRIPTORS to a file with its descriptors';
  throw errors[0] ?? new GrpcError(GrpcCode.unimplemented, text);
}

/** Failures that may pass, of a node that answers. */
const PASSING: ReadonlySet<GrpcCode> = new Set([
  GrpcCode.cancelled,
  GrpcCode.deadlineExceeded,
  GrpcCode.unavailable,
]);
/** How a proxy refuses a method. */
const REFUSING: ReadonlySet<GrpcCode> = new Set([
  GrpcCode.permissionDenied,
  GrpcCode.unauthenticated,
  GrpcCode.unimplemented,
]);

const isRefusal = ({ code, origin }: GrpcError) =>
  origin === 'node' ? !PASSING.has(code) : REFUSING.has(code);

/** Whether a call may succeed later. */
export const isPassing = (error: unknown) => error instanceof GrpcError && !isRefusal(error);

interface Attempt<T> {
  readonly found?: T | undefined;
  readonly refusal?: GrpcError;
}

/** Reads from one of several sources; the others are enough if it is refused. */
async function attempt<T>(reading: Promise<T | undefined>): Promise<Attempt<T>> {
  try {
    return { found: await reading };
  } catch (error) {
    if (!(error instanceof GrpcError) || isPassing(error)) throw error;
    return error.code === GrpcCode.unimplemented ? {} : { refusal: error };
  }
}

/** The services the node serves, and the files that declare them. */
function readServer(upstream: Upstream) {
  return ServerReflection.use(upstream, async (server) => {
    const served = await server.listServices();
    return { served, files: await server.readFiles(served) };
  });
}

/** One call for the whole schema; its reply has the layout of a FileDescriptorSet. */
async function callChainReflection(upstream: Upstream): Promise<Uint8Array> {
  const call = { timeoutMs: DESCRIPTORS_TIMEOUT_MS, maxReplyBytes: MAX_DESCRIPTOR_BYTES };
  return (await upstream.call(FILE_DESCRIPTORS, new Uint8Array(), call)).message;
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
  const call = { timeoutMs: VERSION_TIMEOUT_MS, maxReplyBytes: MAX_DESCRIPTOR_BYTES };
  const { found } = await attempt(upstream.call(NODE_INFO, new Uint8Array(), call));
  if (!found) return undefined;
  const { message } = found;
  const textAt = (path: readonly number[]) => Buffer.from(messageAt(message, path)).toString();
  // GetNodeInfoResponse: 1 default_node_info (4 network), 2 application_version (3 version).
  const build = Buffer.from(messageAt(message, [2])).toString('base64');
  return { network: textAt([1, 4]), version: textAt([2, 3]), build };
}
