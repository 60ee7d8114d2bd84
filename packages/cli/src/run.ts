import { parseArgs } from 'node:util';
import { OracleClientError } from '@sibyl/client';
import { type Call, type Command, CommandError, UsageError } from './command.js';
import { commands } from './commands/commands.js';
import { loadDotEnv } from './config/environment.js';
import { helpOf, optionsOf, overview } from './help.js';
import { ownVersion } from './own-version.js';
import { Output } from './terminal/output.js';

/** Runs one command line; resolves to its exit code: 0 done, 1 not done, 2 not understood. */
export async function run(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv;
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    process.stdout.write(`${overview(commands)}\n`);
    return 0;
  }
  if (name === '--version') {
    process.stdout.write(`${ownVersion()}\n`);
    return 0;
  }
  const command = commands.find((each) => each.name === name);
  if (!command) {
    process.stderr.write(`There is no command "${name}".\n\n${overview(commands)}\n`);
    return 2;
  }
  return runCommand(command, rest);
}

async function runCommand(command: Command, argv: readonly string[]): Promise<number> {
  const isJson = argv.includes('--json');
  try {
    const call = readCall(command, argv);
    if (call.options.help) {
      process.stdout.write(`${helpOf(command)}\n`);
      return 0;
    }
    loadDotEnv();
    return await command.run(call);
  } catch (error) {
    return explain(error, command, isJson);
  }
}

function readCall(command: Command, argv: readonly string[]): Call {
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      options: { ...optionsOf(command) },
      allowPositionals: true,
    });
    return {
      args: positionals,
      options: values as Call['options'],
      output: new Output(values.json ? 'json' : 'text'),
    };
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function explain(error: unknown, command: Command, isJson: boolean): number {
  if (error instanceof UsageError) {
    process.stderr.write(`${error.message}\n\n${helpOf(command)}\n`);
    return 2;
  }
  if (!isForTheUser(error)) throw error;
  const code = error instanceof OracleClientError ? error.code : 'failed';
  if (isJson) process.stdout.write(`${JSON.stringify({ error: error.message, code })}\n`);
  else process.stderr.write(`${error.message}\n`);
  return 1;
}

/** Faults whose message says all there is to say: ours, an oracle's, and the system's, such as a file that cannot be read. */
function isForTheUser(error: unknown): error is Error {
  if (error instanceof CommandError || error instanceof OracleClientError) return true;
  return error instanceof Error && 'syscall' in error;
}
