import { z } from 'zod';
import { Environment } from '../packages/host/src/config/environment.ts';
import { errorCatalog } from '../packages/protocol/src/errors.ts';

/** The pages of `docs/` that are made from the code: path → text. */
export const referencePages: Readonly<Record<string, string>> = {
  'docs/configuration.md': configurationPage(),
  'docs/errors.md': errorsPage(),
};

function configurationPage(): string {
  const rows = Object.entries(Environment.shape).map(
    ([name, schema]) => `| \`${name}\` | ${defaultOf(schema)} | ${schema.description} |`,
  );
  return page(
    'Configuration',
    'The host reads its environment once, at the start. A wrong value stops it with every fault at once, each with what to do. An empty variable counts as unset.',
    ['| Variable | Default | Meaning |', '|---|---|---|', ...rows],
  );
}

function defaultOf(schema: z.ZodType): string {
  if (!(schema instanceof z.ZodPrefault) || schema.def.defaultValue === '') return '';
  return `\`${schema.def.defaultValue}\``;
}

function errorsPage(): string {
  const rows = Object.entries(errorCatalog).map(
    ([code, [status, text]]) => `| \`${code}\` | ${status} | ${text.replaceAll('<', '\\<')} |`,
  );
  return page(
    'Errors',
    'Every error is JSON: `{statusCode, message, error, code, requestId}`. `code` is for programs and stays the same; `message` is for people, and for a body or query that does not fit it is a list with one line per field.',
    ['| Code | Status | Text |', '|---|---|---|', ...rows],
  );
}

function page(title: string, intro: string, lines: readonly string[]): string {
  const note = '<!-- Made by `npm run docs`; edit the code it is made from. -->';
  return `# ${title}\n\n${note}\n\n${intro}\n\n${lines.join('\n')}\n`;
}
