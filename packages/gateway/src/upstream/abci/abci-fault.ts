import { GrpcCode, GrpcError } from '../grpc-error.js';

/** What a node tells when an `abci_query` fails. */
export interface AbciFailure {
  readonly code: number;
  readonly codespace: string;
  readonly log: string;
}

/** Codes of the codespace `sdk` that a query can end with. */
const SDK_CODES: Readonly<Record<number, GrpcCode>> = {
  1: GrpcCode.internal,
  4: GrpcCode.unauthenticated,
  6: GrpcCode.unimplemented,
  7: GrpcCode.invalidArgument,
  8: GrpcCode.invalidArgument,
  18: GrpcCode.invalidArgument,
  22: GrpcCode.invalidArgument,
  26: GrpcCode.invalidArgument,
  29: GrpcCode.invalidArgument,
  30: GrpcCode.notFound,
  35: GrpcCode.internal,
  36: GrpcCode.aborted,
  37: GrpcCode.unimplemented,
  38: GrpcCode.notFound,
};

/** The codespace of faults that no module declared, such as a panic. */
const UNDECLARED = 'undefined';

/** Names of gRPC codes as Go prints them. */
const GO_CODES = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
];

const GO_STATUS = /^rpc error: code = (\w+) desc = ([\s\S]*)$/;

/** The gRPC error that the same query would have had over gRPC. */
export function abciFault({ code, codespace, log }: AbciFailure): GrpcError {
  const [, name = '', description = ''] = GO_STATUS.exec(log) ?? [];
  const stated = GO_CODES.indexOf(name);
  if (stated > 0) return new GrpcError(stated as GrpcCode, withoutKind(description, code));
  if (codespace === 'sdk') return new GrpcError(SDK_CODES[code] ?? GrpcCode.unknown, log);
  if (codespace === UNDECLARED || codespace === '') return new GrpcError(GrpcCode.internal, log);
  return new GrpcError(GrpcCode.unknown, log);
}

/** The node appends its own kind of error to the status of the query. */
const KINDS: Readonly<Record<number, string>> = {
  4: ': unauthorized',
  18: ': invalid request',
  30: ': key not found',
};

function withoutKind(description: string, code: number): string {
  const kind = KINDS[code];
  return kind && description.endsWith(kind) ? description.slice(0, -kind.length) : description;
}
