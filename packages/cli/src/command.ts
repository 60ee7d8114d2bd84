import type { ParseArgsOptionDescriptor } from 'node:util';
import type { Output } from './terminal.js';

/** An option of a command, with what help says of it. */
export interface Option extends ParseArgsOptionDescriptor {
  readonly summary: string;
  /** The placeholder of the value in help. */
  readonly value?: string;
}

/** The parsed command line. */
export interface Call {
  /** The positional arguments. */
  readonly args: readonly string[];
  readonly options: Readonly<Record<string, string | boolean | undefined>>;
  readonly output: Output;
}

/** A subcommand of `sibyl`. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** What may follow the name, one line each. */
  readonly usage: readonly string[];
  /** More than the summary says, for `--help`. */
  readonly details?: string;
  readonly options?: Readonly<Record<string, Option>>;
  /** Resolves to the exit code: 0, or 1 on failure. */
  run(call: Call): Promise<number>;
}

/** The command line is invalid; reported with the usage, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** An error that its message explains; exit code 1, no stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}
