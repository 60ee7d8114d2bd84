import type { ParseArgsOptionDescriptor } from 'node:util';
import type { Output } from './terminal.js';

/** An option of a command, with what help says of it. */
export interface Option extends ParseArgsOptionDescriptor {
  readonly summary: string;
  /** What stands for the value in help. */
  readonly value?: string;
}

/** What a command is run with. */
export interface Call {
  /** What is left beside the options. */
  readonly args: readonly string[];
  readonly options: Readonly<Record<string, string | boolean | undefined>>;
  readonly output: Output;
}

/** One thing that `sibyl` can do. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** What may follow the name, one line each. */
  readonly usage: readonly string[];
  /** More than the summary says, for `--help`. */
  readonly details?: string;
  readonly options?: Readonly<Record<string, Option>>;
  /** Resolves to the exit code: 0, or 1 when what was asked for could not be done. */
  run(call: Call): Promise<number>;
}

/** The command line cannot be understood; told with the usage, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Something went wrong that the message explains; exit code 1, no stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}
