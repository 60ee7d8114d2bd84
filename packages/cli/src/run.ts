import { parseArgs } from 'node:util';
import { OracleClientError } from '@sibyl/client';
import {
  addDefaultAction,
  type Call,
  type Command,
  CommandError,
  findExtraArgument,
  type Option,
  suggest,
  UsageError,
} from './command.js';
import { approvals, receipts } from './commands/approvals.js';
import { callers, invite } from './commands/callers.js';
import { chat } from './commands/chat.js';
import { createCompletion } from './commands/completion.js';
import { delegate } from './commands/delegate.js';
import { doctor, plugins } from './commands/doctor.js';
import { files } from './commands/files.js';
import { key, token } from './commands/key.js';
import { keys } from './commands/keys.js';
import { matrix } from './commands/matrix.js';
import { newOracle } from './commands/new.js';
import { audit, credits, operators, users } from './commands/operators.js';
import {
  eraseData,
  exportData,
  importData,
  memory,
  retention,
  usage,
} from './commands/own-data.js';
import { rules } from './commands/rules.js';
import { schedules } from './commands/schedules.js';
import { sessions } from './commands/sessions.js';
import { gateway, start } from './commands/start.js';
import { backup, migrate, restore } from './commands/store.js';
import { isStyled, loadDotEnv, readVersion } from './environment.js';
import { Output, table } from './terminal.js';

/** Runs one command line; resolves to its exit code: 0 success, 1 failure, 2 invalid usage. */
export async function run(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    const topic = rest.find((word) => !word.startsWith('-'));
    if (topic !== undefined) return run([topic, '--help']);
    process.stdout.write(`${overview(commands)}\n`);
    return 0;
  }
  if (name === '--version') {
    process.stdout.write(`${readVersion()}\n`);
    return 0;
  }
  const command = commands.find((each) => each.name === name);
  if (!command) {
    const near = suggest(
      name,
      commands.map((each) => each.name),
    );
    const advice = near || ` Run "sibyl --help" for the list.`;
    process.stderr.write(`There is no command "${name}".${advice}\n`);
    return 2;
  }
  return runCommand(command, rest);
}

async function runCommand(command: Command, argv: readonly string[]): Promise<number> {
  const isJson = argv.includes('--json');
  try {
    const call = readCall(command, argv);
    if (call.options.help) {
      process.stdout.write(`${formatHelp(command)}\n`);
      return 0;
    }
    loadDotEnv();
    return await command.run(call);
  } catch (error) {
    return explain(error, command, isJson);
  }
}

function readCall(command: Command, argv: readonly string[]): Call {
  const { values, positionals } = parseOptions(command, argv);
  // Usually a variable of the shell that is not set; as the beginning of an id, it would match any.
  if (positionals.some((arg) => arg.trim() === '') && !values.help)
    throw new UsageError('An argument is empty');
  const args = addDefaultAction(command, positionals);
  const extra = findExtraArgument(command, args);
  if (extra !== undefined && !values.help)
    throw new UsageError(`Unexpected argument "${extra}". Put text with spaces in quotes.`);
  return {
    args,
    options: values as Call['options'],
    output: new Output(values.json ? 'json' : 'text', isStyled()),
  };
}

function parseOptions(command: Command, argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      options: { ...getOptions(command) },
      allowPositionals: true,
    });
  } catch (error) {
    throw new UsageError(describeMistake(error as Error, command));
  }
}

/** What is wrong with options, and which one was perhaps meant. */
function describeMistake({ message }: Error, command: Command): string {
  const [, unknown] = /^Unknown option '--([^']+)'/.exec(message) ?? [];
  if (unknown === undefined) return message;
  const near = suggest(unknown, Object.keys(getOptions(command)));
  return `Unknown option '--${unknown}'.${near.replace('"', '"--')}`;
}

function explain(error: unknown, command: Command, isJson: boolean): number {
  if (error instanceof UsageError) {
    process.stderr.write(`${error.message}\n\n${formatHelp(command)}\n`);
    return 2;
  }
  if (!isForTheUser(error)) throw error;
  const code = error instanceof OracleClientError ? error.code : 'failed';
  if (isJson) process.stdout.write(`${JSON.stringify({ error: error.message, code })}\n`);
  else process.stderr.write(`${error.message}\n`);
  return 1;
}

/** Errors whose message is enough: ours, an oracle's, and the system's, such as a file that cannot be read. */
function isForTheUser(error: unknown): error is Error {
  if (error instanceof CommandError || error instanceof OracleClientError) return true;
  return error instanceof Error && 'syscall' in error;
}

/** Every command, in the order help shows them. */
export const commands: readonly Command[] = [
  start,
  newOracle,
  chat,
  sessions,
  key,
  token,
  files,
  delegate,
  keys,
  approvals,
  receipts,
  rules,
  schedules,
  matrix,
  memory,
  usage,
  exportData,
  importData,
  eraseData,
  invite,
  callers,
  operators,
  users,
  audit,
  doctor,
  plugins,
  credits,
  retention,
  backup,
  restore,
  migrate,
  gateway,
  createCompletion(() => ({ commands, commonOptions })),
];

/** Options that every command has. */
export const commonOptions: Readonly<Record<string, Option>> = {
  json: { type: 'boolean', summary: 'Write one JSON document instead of text' },
  help: { type: 'boolean', short: 'h', summary: 'Show this help' },
};

/** All options of a command. */
const getOptions = (command: Command): Readonly<Record<string, Option>> => ({
  ...command.options,
  ...commonOptions,
});

/** What `sibyl` alone shows. */
function overview(commands: readonly Command[]): string {
  const rows = commands.map(({ name, summary }) => [`  ${name}`, summary]);
  return [
    'Usage: sibyl <command> [options]',
    '',
    'Commands:',
    table(rows),
    '',
    'Run "sibyl <command> --help" for details.',
  ].join('\n');
}

function formatHelp(command: Command): string {
  const usage = command.usage.map((line) => `  sibyl ${command.name} ${line}`.trimEnd());
  const options = Object.entries(getOptions(command)).map(([name, option]) => [
    `  ${option.short ? `-${option.short}, ` : ''}--${name}${option.value ? ` <${option.value}>` : ''}`,
    option.summary,
  ]);
  return [
    command.summary,
    '',
    'Usage:',
    ...usage,
    ...(command.details ? ['', command.details] : []),
    '',
    'Options:',
    table(options),
  ].join('\n');
}
