import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { Query, QueryHandler } from '../../src/grpc-server.js';

/** The SDK error that wraps the error of a query, by its gRPC code. */
const SDK_ERRORS: Partial<Record<GrpcCode, readonly [code: number, words: string]>> = {
  [GrpcCode.notFound]: [22, 'key not found'],
  [GrpcCode.invalidArgument]: [18, 'invalid request'],
  [GrpcCode.failedPrecondition]: [18, 'invalid request'],
  [GrpcCode.unauthenticated]: [4, 'unauthorized'],
};
const ANY_OTHER = [6, 'unknown request'] as const;

/** Rejected before the query runs, so nothing wraps them. */
const HEIGHT_ERRORS: readonly (readonly [RegExp, code: number])[] = [
  [/^cannot query with height/, 26],
  [/^failed to load state/, 18],
];

const GO_NAMES: Partial<Record<GrpcCode, string>> = {
  [GrpcCode.unknown]: 'Unknown',
  [GrpcCode.invalidArgument]: 'InvalidArgument',
  [GrpcCode.notFound]: 'NotFound',
  [GrpcCode.failedPrecondition]: 'FailedPrecondition',
  [GrpcCode.unauthenticated]: 'Unauthenticated',
  [GrpcCode.internal]: 'Internal',
  [GrpcCode.resourceExhausted]: 'ResourceExhausted',
  [GrpcCode.unavailable]: 'Unavailable',
};

interface RunOptions {
  readonly answer: QueryHandler;
}

/** The result of `abci_query`: the same bytes as over gRPC, errors by the numbers of the SDK. */
export async function abciQuery(params: Readonly<Record<string, unknown>>, { answer }: RunOptions) {
  const query: Query = {
    method: String(params.path).replace(/^\//, ''),
    request: Buffer.from(String(params.data ?? ''), 'hex'),
    height: Number(params.height ?? 0) || undefined,
  };
  const base = { info: '', index: '0', key: null, proofOps: null };
  try {
    const said = await answer(query);
    if ('error' in said) throw said.error;
    const value = Buffer.from(said.message).toString('base64') || null;
    const height = String(said.height ?? 0);
    return { response: { ...base, code: 0, log: '', value, height, codespace: '' } };
  } catch (error) {
    if (!(error instanceof GrpcError)) throw error;
    const failed = { ...base, value: null, height: '0', codespace: 'sdk' };
    return { response: { ...failed, ...toSdkError(error) } };
  }
}

function toSdkError({ code, message }: GrpcError) {
  if (code === GrpcCode.unimplemented)
    return { code: 6, log: 'unknown query path: unknown request' };
  const rejected = HEIGHT_ERRORS.find(([pattern]) => pattern.test(message));
  if (rejected) return { code: rejected[1], log: message };
  const [number, words] = SDK_ERRORS[code] ?? ANY_OTHER;
  return { code: number, log: `rpc error: code = ${GO_NAMES[code]} desc = ${message}: ${words}` };
}
