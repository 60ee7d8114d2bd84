import { GrpcCode, GrpcError } from '@sibyl/grpc-client';

/** The error of an `abci_query`. */
export interface AbciError {
  readonly code: number;
  readonly codespace: string;
  readonly log: string;
}

/**
 * The SDK wraps the error of a query into one of these, by its gRPC code, and appends the text. An error without
 * a gRPC code becomes an invalid request, all other codes an unknown request.
 */
const UNAUTHORIZED = 4;
const UNKNOWN_REQUEST = 6;
const INVALID_REQUEST = 18;
const KEY_NOT_FOUND = 22;
const SUFFIXES: Readonly<Record<number, string>> = {
  [UNAUTHORIZED]: ': unauthorized',
  [UNKNOWN_REQUEST]: ': unknown request',
  [INVALID_REQUEST]: ': invalid request',
  [KEY_NOT_FOUND]: ': key not found',
};

const CODES: Readonly<Record<number, GrpcCode>> = {
  [UNAUTHORIZED]: GrpcCode.unauthenticated,
  [KEY_NOT_FOUND]: GrpcCode.notFound,
};

/** The log of a method that the node does not have. */
const UNKNOWN_PATH = 'unknown query path: unknown request';
/** Rejected before the query ran, so the text is the whole error. */
const HEIGHT_REJECTED = /^(?:failed to load state at height|cannot query with height)/;
/** The codespace of errors that no module declares, such as a panic. */
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

const GO_STATUS = /rpc error: code = (\w+) desc = /;

/** The gRPC error that the same query would have had over gRPC. */
export function toGrpcError({ code, codespace, log }: AbciError): GrpcError {
  if (codespace === UNDECLARED || codespace === '') {
    return new GrpcError(GrpcCode.internal, withoutSuffix(log, ': panic'));
  }
  if (codespace !== 'sdk') return new GrpcError(GrpcCode.unknown, log);
  if (log === UNKNOWN_PATH) return new GrpcError(GrpcCode.unimplemented, log);
  if (HEIGHT_REJECTED.test(log)) return new GrpcError(GrpcCode.unknown, log);
  const text = withoutSuffix(log, SUFFIXES[code]);
  const status = GO_STATUS.exec(text);
  const stated = GO_CODES.indexOf(status?.[1] ?? '');
  if (!status || stated < 1) return new GrpcError(CODES[code] ?? GrpcCode.unknown, text);
  // An error that wraps a status has its code and its own text.
  const message = status.index === 0 ? text.slice(status[0].length) : text;
  return new GrpcError(stated as GrpcCode, message);
}

function withoutSuffix(text: string, suffix: string | undefined): string {
  return suffix && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}
