import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { Option } from '../src/command.js';
import { commands, commonOptions } from '../src/run.js';

const page = readFileSync(join(import.meta.dirname, '../../../docs/cli.md'), 'utf8');
const [, ...sections] = page.split(/^## /m);
const titled = new Map(
  sections.map((text) => [text.slice(0, text.indexOf('\n')), text.slice(text.indexOf('\n'))]),
);

it('docs/cli.md has a section for each command, in order', () => {
  const names = commands.map(({ name }) => `sibyl ${name}`);
  expect([...titled.keys()]).toEqual(['Every command', ...names]);
});

it('docs/cli.md lists the options of all', () => {
  expect(rowsIn(titled.get('Every command'))).toEqual(readRows(commonOptions));
});

it.each(commands.map((command) => [command.name, command.options ?? {}]))(
  'docs/cli.md lists the options of %s',
  (name, options) => {
    expect(rowsIn(titled.get(`sibyl ${name}`))).toEqual(readRows(options));
  },
);

const rowsIn = (section = ''): string[] => section.match(/^\| `-.*$/gm) ?? [];

const readRows = (options: Readonly<Record<string, Option>>): string[] =>
  Object.entries(options).map(([name, { short, value, summary }]) => {
    const shown = value ? `\`--${name} <${value}>\`` : `\`--${name}\``;
    return `| ${short ? `\`-${short}\`, ` : ''}${shown} | ${summary} |`;
  });
