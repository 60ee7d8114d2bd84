import { GrpcCode, GrpcError, httpStatusOf } from '@sibyl/grpc-client';
import { heightFaultOf } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import { BindFault, WireFault } from '../schema/schema.js';

interface QueryFaultOptions {
  /** Where HTTP has a better word than the mapping of the code. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A question that gets no answer: what the client is told, as gRPC and as HTTP. */
export class QueryFault extends Error {
  override readonly name = 'QueryFault';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    readonly code: GrpcCode,
    message: string,
    { status = httpStatusOf(code), headers = {} }: QueryFaultOptions = {},
  ) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** A request that cannot be understood. */
export const badRequest = (message: string) => new QueryFault(GrpcCode.invalidArgument, message);

interface FaultContext {
  readonly pool: NodePool;
  readonly height: number | undefined;
  readonly compat: 'node' | undefined;
}

/** What a client is told of a failure; undefined for one that is the gateway's own and tells nothing. */
export function explainFault(fault: unknown, context: FaultContext): QueryFault | undefined {
  if (fault instanceof QueryFault) return fault;
  if (fault instanceof BindFault) return badRequest(fault.message);
  if (fault instanceof WireFault) return new QueryFault(GrpcCode.internal, fault.message);
  if (!(fault instanceof GrpcError)) return undefined;
  return heightFault(fault, context) ?? nodeFault(fault);
}

function heightFault(fault: GrpcError, { pool, height, compat }: FaultContext) {
  const { latest, earliest } = pool;
  const kind = heightFaultOf(fault, height, latest)?.kind;
  if (!kind || compat) return undefined;
  if (kind === 'future') {
    return badRequest(`height ${height} is in the future: the latest is ${latest}`);
  }
  return new QueryFault(GrpcCode.notFound, prunedText(height ?? 0, earliest, latest));
}

/** Says which heights can be asked, as far as any node tells. */
export function prunedText(height: number, earliest: number | undefined, latest: number): string {
  const from =
    earliest !== undefined && earliest > height ? `${earliest}` : `a height above ${height}`;
  return `height ${height} is no longer kept: available are ${from} to ${latest}`;
}

const RETRY_SECONDS = '1';

function nodeFault({ code, message }: GrpcError): QueryFault {
  const isPassing = code === GrpcCode.unavailable || code === GrpcCode.resourceExhausted;
  return new QueryFault(
    code,
    message,
    isPassing ? { headers: { 'Retry-After': RETRY_SECONDS } } : {},
  );
}
