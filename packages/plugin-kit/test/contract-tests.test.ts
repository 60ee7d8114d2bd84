import { Controller, Get } from '@nestjs/common';
import { defineTool, type OraclePlugin, type SetupContext } from '@sibyl/plugin-kit';
import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { contractTests } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { notesPlugin } from './notes-plugin.js';

const answer = () => 'a sum';

describe('a plugin that keeps to the contract', () => {
  it.each(contractTests(notesPlugin, { answer }))('$name', ({ run }) => run());
});

it('contractTests names the option that is missing', async () => {
  const run = (plugin: OraclePlugin) =>
    Promise.all(contractTests(plugin).map((test) => test.run()));
  await expect(run({ ...notesPlugin, dependsOn: ['tags'] })).rejects.toThrow(/`dependencies`/);
  const setup = async ({ fetch }: SetupContext) => void (await fetch('https://example.com'));
  const { migrations: _, ...rest } = notesPlugin;
  const plugin = { ...rest, setup } as unknown as OraclePlugin;
  await expect(run(plugin)).rejects.toThrow(/set the option `fetch`/);
});

@Controller('broken')
class BrokenController {
  @Get('undescribed')
  undescribed() {
    throw new TypeError('oops');
  }
}
class BrokenModule {}

const tool = (parts: object) =>
  defineTool({
    name: 'odd',
    description: 'Does something that is odd',
    inputSchema: z.object({ text: z.string().optional() }),
    run: () => 1,
    ...parts,
  });

/** What is asked, and a plugin that does not keep to it. */
const offenders: Record<string, Partial<OraclePlugin>> = {
  'has a name, a version and a manifest that a host accepts': { version: 'one' },
  'depends on plugins by name, and not on itself': { softDependsOn: ['notes'] },
  'describes each of its variables': {
    configSchema: z.object({ X: z.string().optional() }),
  },
  'autoDetect returns a boolean for every environment and has a hint': {
    autoDetect: () => 'yes' as unknown as boolean,
  },
  'setup and close succeed': { close: () => Promise.reject(new Error('stuck')) },
  'reads its variables from the context, not from process.env': {
    getTools: () => [tool({ description: `${process.env.NOTES_LIMIT} notes at the most` })],
  },
  'starts a turn with hostile metadata, attachments and tools': {
    getRequestTools: ({ request }) =>
      [tool({ name: request.tools?.[0]?.name ?? 'none' })].filter(() => {
        if (request.attachments.length > 0) throw new Error('no files, please');
        return true;
      }),
  },
  'wrapModel accepts unusual requests, or refuses with an OracleError': {
    getMiddlewares: () => [
      {
        name: 'm',
        wrapModel: (request, next) =>
          next({
            ...request,
            system:
              request.messages[0]?.role.toUpperCase() ?? (undefined as never as { a: string }).a,
          }),
      },
    ],
  },
  'the message gate admits a message, or refuses with an OracleError': {
    getMessageGate: () => ({ admit: () => Promise.reject(new TypeError('oops')) }),
  },
  'has tables with an owner and a primary key, so that users can export and erase their rows': {
    tables: [
      ...(notesPlugin.tables ?? []),
      defineTable('notes_tags', { tag: text() }, { key: ['tag'], ownerColumn: false }),
    ],
  },
  'has tools with unique names and useful descriptions': {
    getTools: () => [tool({ description: 'short' })],
  },
  'has tools whose input schema describes an object': {
    getTools: () => [tool({ inputSchema: z.string() })],
  },
  'has tools that return JSON or throw an Error for hostile input': {
    getTools: () => [
      tool({
        run: () => {
          throw 'a text';
        },
      }),
    ],
  },
  'opens only routes that exist': { getAuthExcludedRoutes: () => ['/notes/abuot'] },
  'describes its routes': {
    getNestModules: () => [{ module: BrokenModule, controllers: [BrokenController] }],
    getAuthExcludedRoutes: () => [],
  },
  'answers hostile requests with a status below 500, errors as JSON': {
    getNestModules: () => [{ module: BrokenModule, controllers: [BrokenController] }],
    getAuthExcludedRoutes: () => [],
  },
};

describe('a plugin that does not', () => {
  it.each(Object.entries(offenders))('is found out: %s', async (name, parts) => {
    const broken: OraclePlugin = { ...notesPlugin, ...parts };
    const found = contractTests(broken, { answer }).find((test) => test.name === name);
    await expect(found?.run()).rejects.toThrow();
  });
});
