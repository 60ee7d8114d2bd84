import { Controller, Get } from '@nestjs/common';
import { defineTool, type OraclePlugin } from '@sibyl/plugin-kit';
import { contractTests } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { notesPlugin } from './notes-plugin.js';

const answer = () => 'a sum';

describe('a plugin that keeps to the contract', () => {
  it.each(contractTests(notesPlugin, { answer }))('$name', ({ run }) => run());
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
  'says of each of its variables what it is for': {
    configSchema: z.object({ X: z.string().optional() }),
  },
  'can tell from any environment whether it loads, and says what it misses': {
    autoDetect: () => 'yes' as unknown as boolean,
  },
  'is set up, and closes': {
    getTools: ({ onClose }) => {
      onClose(() => Promise.reject(new Error('stuck')));
      return [];
    },
  },
  'takes its variables from its context, never from the process': {
    getTools: () => [tool({ description: `${process.env.NOTES_LIMIT} notes at the most` })],
  },
  'begins a turn whatever comes with the message': {
    getRequestTools: ({ request }) =>
      [tool({ name: request.tools?.[0]?.name ?? 'none' })].filter(() => {
        if (request.attachments.length > 0) throw new Error('no files, please');
        return true;
      }),
  },
  'lets models be asked whatever the conversation, or refuses in words': {
    getMiddlewares: () => [
      {
        name: 'm',
        beforeModel: ({ messages }) => ({
          system: messages[0]?.role.toUpperCase() ?? (undefined as never as { a: string }).a,
        }),
      },
    ],
  },
  'answers a message at its gate, or refuses in words': {
    getMessageGate: () => ({ admit: () => Promise.reject(new TypeError('oops')) }),
  },
  'has tools with names of their own, and words that say when to use them': {
    getTools: () => [tool({ description: 'short' })],
  },
  'has tools that take objects a model can be told of': {
    getTools: () => [tool({ inputSchema: z.string() })],
  },
  'has tools that answer with JSON or an error, whatever they are given': {
    getTools: () => [
      tool({
        run: () => {
          throw 'a text';
        },
      }),
    ],
  },
  'opens only routes that it has': { getAuthExcludedRoutes: () => ['/notes/abuot'] },
  'describes its routes': {
    getNestModules: () => [{ module: BrokenModule, controllers: [BrokenController] }],
    getAuthExcludedRoutes: () => [],
  },
  'answers its routes whatever is sent, errors as JSON': {
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
