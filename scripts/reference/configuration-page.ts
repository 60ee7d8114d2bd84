import { z } from 'zod';
import { Environment } from '../../packages/host/src/config/environment.ts';
import { page, table } from './page.ts';

/** Every variable of the host. */
export function configurationPage(): string {
  const rows = Object.entries(Environment.shape).map(([name, schema]) => [
    `\`${name}\``,
    defaultOf(schema),
    schema.description ?? '',
  ]);
  return page(
    'Configuration',
    'The host reads its environment once, at the start. A wrong value stops it with every fault at once, each with what to do. An empty variable counts as unset.',
    table(['Variable', 'Default', 'Meaning'], rows),
  );
}

function defaultOf(schema: z.ZodType): string {
  if (!(schema instanceof z.ZodPrefault) || schema.def.defaultValue === '') return '';
  return `\`${schema.def.defaultValue}\``;
}
