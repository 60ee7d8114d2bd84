import { GrpcCode, httpStatusOf } from '../upstream/grpc-error.js';

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
