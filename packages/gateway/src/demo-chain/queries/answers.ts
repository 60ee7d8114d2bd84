import type { JsonObject } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '../../upstream/grpc-error.js';
import type { Blocks } from '../blocks.js';

/** The chain as it was at one block. */
export interface Moment {
  readonly height: number;
  readonly blocks: Blocks;
}

/** Answers one method: request and reply are JSON with proto names. */
export type AnswerMethod = (request: JsonObject, moment: Moment) => JsonObject;

/** The methods of one service by name. */
export type ServiceAnswers = Readonly<Record<string, AnswerMethod>>;

/** A field of the request that must be there. */
export function required(request: JsonObject, field: string): string {
  const value = request[field];
  if (typeof value === 'string' && value !== '') return value;
  throw new GrpcError(GrpcCode.invalidArgument, `${field} must not be empty`);
}

/** The first record that fits, or an error that says what is missing. */
export function found<T>(records: readonly T[], fits: (record: T) => boolean, what: string): T {
  const record = records.find(fits);
  if (record !== undefined) return record;
  throw new GrpcError(GrpcCode.notFound, `${what} not found`);
}
