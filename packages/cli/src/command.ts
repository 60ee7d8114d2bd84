import type { ParseArgsOptionDescriptor } from 'node:util';
import type { Output } from './terminal.js';

/** An option of a command, with what help says of it. */
export interface Option extends ParseArgsOptionDescriptor {
  readonly summary: string;
  /** The placeholder of the value in help. */
  readonly value?: string;
}

type OptionValue = string | boolean | readonly string[];

/** The parsed command line. */
export interface Call {
  /** The positional arguments. */
  readonly args: readonly string[];
  readonly options: Readonly<Record<string, OptionValue | undefined>>;
  readonly output: Output;
}

/** A subcommand of `sibyl`. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** What may follow the name, one line each; a line that begins with a word is an action, `[word]` the default one. */
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

/** Reports a fault as every command does, also with `--json`. */
export function fail(fault: string): never {
  throw new CommandError(fault);
}

/** The actions that the usage of a command names. */
export function listActions({ usage }: Pick<Command, 'usage'>): string[] {
  if (!usage.some((line) => /^[a-z]/.test(line))) return [];
  return [...new Set(usage.flatMap((line) => /^\[?([a-z]+)\]?(?: |$)/.exec(line)?.[1] ?? []))];
}

/** Whether an argument is the address of an oracle. */
export const isAddress = (arg: string | undefined): boolean =>
  /^https?:$/.test(URL.parse(arg ?? '')?.protocol ?? '');

/** Adds the default action to arguments that name none: there are none, or the first is an address. */
export function addDefaultAction(
  command: Pick<Command, 'usage'>,
  args: readonly string[],
): string[] {
  const standard = listActions(command).find((name) =>
    command.usage.some((line) => line.startsWith(`[${name}]`)),
  );
  const isMissing = args.length === 0 || isAddress(args[0]);
  return standard !== undefined && isMissing ? [standard, ...args] : [...args];
}

/** The first argument that no line of the usage has a place for; undefined if there is none. */
export function findExtraArgument(
  command: Pick<Command, 'usage'>,
  args: readonly string[],
): string | undefined {
  const actions = listActions(command);
  const [action = ''] = args;
  // An unknown action has its own message.
  if (actions.length > 0 && !actions.includes(action)) return undefined;
  const places = command.usage.map(listPlaces).filter(([first]) => {
    return actions.length === 0 || first?.replaceAll(/[[\]]/g, '') === action;
  });
  return args[Math.max(...places.map(({ length }) => length))];
}

/** The words, `<…>` and `[…]` of a line of the usage, without its options. */
const listPlaces = (line: string): string[] =>
  line.replaceAll(/\(.*?\)|\[--.*?\]|--\S+( <.*?>)?/g, '').match(/<.*?>|\[.*?\]|\S+/g) ?? [];

/** Finds the action that a command line names. */
export function findAction<T>(actions: Readonly<Record<string, T>>, name: string | undefined): T {
  if (name !== undefined && Object.hasOwn(actions, name)) return actions[name] as T;
  const names = Object.keys(actions);
  const problem = name === undefined ? '' : `There is no action "${name}".${suggest(name, names)} `;
  throw new UsageError(`${problem}Name an action: ${names.join(', ')}`);
}

/** ` Did you mean "…"?`, if a word is close to what was typed; otherwise nothing. */
export function suggest(typed: string, words: readonly string[]): string {
  const limit = Math.max(1, Math.floor(typed.length / 3));
  const [best] = words
    .map((word) => ({ word, distance: measureDistance(typed.toLowerCase(), word) }))
    .filter(
      ({ word, distance }) => distance <= limit || (typed.length > 2 && word.startsWith(typed)),
    )
    .sort((a, b) => a.distance - b.distance);
  return best ? ` Did you mean "${best.word}"?` : '';
}

/** Longer words are typed on purpose. */
const MAX_TYPED = 40;

/** How many letters to add, remove, replace or swap with their neighbor. */
function measureDistance(from: string, to: string): number {
  if (from.length > MAX_TYPED) return Number.POSITIVE_INFINITY;
  const rows = [Array.from({ length: to.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= to.length; j++) {
      const isSame = from[i - 1] === to[j - 1];
      const isSwapped = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      row.push(
        Math.min(
          at(i - 1, j) + 1,
          at(i, j - 1) + 1,
          at(i - 1, j - 1) + (isSame ? 0 : 1),
          isSwapped ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(from.length, to.length);
}
