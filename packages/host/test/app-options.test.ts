import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider';
import { createOracleApp, type OracleApp, type OracleAppOptions } from '@sibyl/host';
import { defineTool } from '@sibyl/plugin-kit';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { z } from 'zod';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

let dataDir: string;
let app: OracleApp | undefined;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'app-options-'));
});
afterEach(async () => {
  await app?.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function ask(options: OracleAppOptions, message: string) {
  const env = { LOG_LEVEL: 'silent', PORT: '1', ORACLE_NAME: 'overridden' };
  app = await createOracleApp({ env, bundled: [], port: 0, dataDir, ...options });
  const alice = new TestUser({ url: await app.listen(), did: app.did });
  const sessionId = await openSession(alice);
  return (await alice.request('POST', `/messages/${sessionId}`, { body: { message } })).body;
}

it('createOracleApp takes tools without a plugin', async () => {
  const greet = defineTool({
    name: 'greet',
    description: 'Greets a person by name',
    inputSchema: z.object({ person: z.string() }),
    run: ({ person }) => `Hello, ${person}`,
  });
  const { message } = await ask({ tools: [greet] }, 'use greet with person: Sam');
  expect(message.content).toContain('Hello, Sam');
});

it('createOracleApp takes a model of the AI SDK, a name and instructions', async () => {
  const prompts: string[] = [];
  const parts: LanguageModelV4StreamPart[] = [
    { type: 'text-start', id: '1' },
    { type: 'text-delta', id: '1', delta: 'From my model' },
    { type: 'text-end', id: '1' },
    {
      type: 'finish',
      finishReason: { unified: 'stop', raw: 'stop' },
      usage: {
        inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 1, text: 1, reasoning: 0 },
      },
    },
  ];
  const model: LanguageModelV4 = {
    specificationVersion: 'v4',
    provider: 'mine',
    modelId: 'parrot',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('only streams are used')),
    doStream: async ({ prompt }) => {
      prompts.push(JSON.stringify(prompt[0]));
      const stream = new ReadableStream<LanguageModelV4StreamPart>({
        start: (controller) => {
          for (const part of parts) controller.enqueue(part);
          controller.close();
        },
      });
      return { stream };
    },
  };
  const { message } = await ask({ model, name: 'Pythia', instructions: 'Be brief.' }, 'Hello');
  expect(message.content).toBe('From my model');
  expect(prompts[0]).toMatch(/Pythia.*Be brief\./);
});

it('createOracleApp refuses an option that it does not have', async () => {
  const options = { dataDir, bundled: [], plugin: [] } as OracleAppOptions;
  await expect(createOracleApp(options)).rejects.toThrow(
    /plugin: createOracleApp has no such option[\s\S]*Use one of .*plugins, /,
  );
});
