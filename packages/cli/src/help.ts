import type { Command, Option } from './command.js';
import { table } from './terminal/table.js';

/** Options that every command has. */
export const commonOptions: Readonly<Record<string, Option>> = {
  json: { type: 'boolean', summary: 'Write one JSON document instead of text' },
  help: { type: 'boolean', short: 'h', summary: 'Show this help' },
};

/** All options of a command. */
export const optionsOf = (command: Command): Readonly<Record<string, Option>> => ({
  ...command.options,
  ...commonOptions,
});

/** What `sibyl` alone shows. */
export function overview(commands: readonly Command[]): string {
  const rows = commands.map(({ name, summary }) => [`  ${name}`, summary]);
  return [
    'Usage: sibyl <command> [options]',
    '',
    'Commands:',
    table(rows),
    '',
    '"sibyl <command> --help" says more.',
  ].join('\n');
}

export function helpOf(command: Command): string {
  const usage = command.usage.map((line) => `  sibyl ${command.name} ${line}`.trimEnd());
  const options = Object.entries(optionsOf(command)).map(([name, option]) => [
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
