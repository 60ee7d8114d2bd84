import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { Query, QueryHandler } from '../../src/grpc-server.js';

/** SDK codes and texts of query errors. */
const SDK_ERRORS: Partial<Record<GrpcCode, readonly [code: number, words: string]>> = {
  [GrpcCode.notFound]: [30, 'key not found'],
  [GrpcCode.unauthenticated]: [4, 'unauthorized'],
  [GrpcCode.unimplemented]: [6, 'unknown request'],
};
const INVALID_REQUEST = [18, 'invalid request'] as const;

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
  // The chain has errors of the SDK as text, as gRPC sends them.
  const spelled = /^codespace sdk code (\d+): ([^:]+): (.*)$/s.exec(message);
  if (spelled) return { code: Number(spelled[1]), log: `${spelled[3]}: ${spelled[2]}` };
  const [number, words] = SDK_ERRORS[code] ?? INVALID_REQUEST;
  return { code: number, log: `${message}: ${words}` };
}
