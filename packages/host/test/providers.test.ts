import { defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startHost, type TestHost } from './support/host.js';
import { startAnthropicServer } from './support/model-servers/anthropic-server.ts';
import { startChatCompletionsServer } from './support/model-servers/chat-completions-server.ts';
import { startGoogleServer } from './support/model-servers/google-server.ts';
import type { ModelServer } from './support/model-servers/model-server.ts';
import { startOpenAiServer } from './support/model-servers/openai-server.ts';
import type { ScriptedReply } from './support/model-servers/script.ts';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const key = 'sk-test-0123456789';
const providers = {
  openai: {
    start: startOpenAiServer,
    env: (url: string) => ({ OPENAI_API_KEY: key, OPENAI_BASE_URL: url }),
  },
  anthropic: {
    start: startAnthropicServer,
    env: (url: string) => ({ ANTHROPIC_API_KEY: key, ANTHROPIC_BASE_URL: url }),
  },
  google: {
    start: startGoogleServer,
    env: (url: string) => ({
      GOOGLE_GENERATIVE_AI_API_KEY: key,
      GOOGLE_GENERATIVE_AI_BASE_URL: url,
    }),
  },
  'openai-compatible': {
    start: startChatCompletionsServer,
    env: (url: string) => ({ MODEL: 'openai-compatible/some-model', MODEL_BASE_URL: url }),
  },
};

const add = defineTool({
  name: 'add',
  description: 'Adds two numbers',
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  run: ({ a, b }) => a + b,
});
const plugins = [testPlugin('sums', { getTools: () => [add] })];

/** A host whose provider answers by the script of the current test, during the surrounding `describe`. */
function useProvider(provider: keyof typeof providers) {
  const parts: { host?: TestHost; server?: ModelServer } = {};
  const script: ScriptedReply[] = [];
  let asked = 0;
  beforeAll(async () => {
    const { start, env } = providers[provider];
    parts.server = await start({
      reply: ({ body }) => {
        // Titles are created in the background, perhaps during the next test.
        if (JSON.stringify(body).includes('Write a title')) return { say: [{ text: ['Sums'] }] };
        asked += 1;
        // In order; the last is repeated.
        return script[Math.min(asked, script.length) - 1] ?? {};
      },
    });
    parts.host = await startHost({ env: env(parts.server.url), plugins });
  });
  afterAll(async () => {
    await parts.host?.close();
    await parts.server?.close();
  });
  /** A new user with a new session, and a script from its beginning. */
  async function begin(...replies: ScriptedReply[]) {
    script.splice(0, Infinity, ...replies);
    asked = 0;
    const host = parts.host as TestHost;
    const alice = new TestUser(host);
    return { host, alice, sessionId: await openSession(alice) };
  }
  /** One turn, answered by script. */
  async function turnWith(...replies: ScriptedReply[]) {
    const { host, alice, sessionId } = await begin(...replies);
    const logged = host.log.length;
    const live = await stream(alice, sessionId, { message: 'add for me' });
    const frames = await live.toEnd();
    const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
    return { frames, text: live.text, messages, log: JSON.stringify(host.log.slice(logged)) };
  }
  return { begin, turnWith };
}

const call = (id: string, a: number) => ({
  toolCall: { id, name: 'add', input: JSON.stringify({ a, b: 1 }) },
});

describe.each(Object.keys(providers) as (keyof typeof providers)[])('%s', (provider) => {
  const { begin, turnWith } = useProvider(provider);

  it('streams text and calls tools in parallel', async () => {
    const { frames, text, messages } = await turnWith(
      { say: [call('one', 1), call('two', 2)] },
      { say: [{ text: ['Two ', 'and three.'] }] },
    );
    expect(text).toBe('Two and three.');
    const outputs = frames
      .filter(({ event, data }) => event === 'tool_call' && data.status === 'done')
      .map(({ data }) => data.output);
    expect(outputs.toSorted()).toEqual(['2', '3']);
    expect(messages.at(-1)).toMatchObject({ content: 'Two and three.', isComplete: true });
    expect(messages.at(-1).toolCalls).toHaveLength(2);
  });

  it.each([
    [401, 'auth', false],
    [402, 'billing', false],
    [500, 'server', true],
  ])(
    'turns %i into a fault of kind %s, and keeps the key to itself',
    async (status, kind, retryable) => {
      const { frames, messages, log } = await turnWith({ error: { status } });
      expect(frames.map(({ event }) => event)).toEqual(['run', 'error', 'done']);
      expect(frames[1]?.data).toMatchObject({ kind, retryable });
      expect(JSON.stringify(frames) + log).not.toContain(key);
      expect(messages).toMatchObject([
        { type: 'human', content: 'add for me' },
        { type: 'ai', status: 'failed', isComplete: false, error: { code: 'model_unavailable' } },
      ]);
    },
    120_000,
  );

  it.each([
    [401, null],
    [403, null],
    [402, null],
    [400, null],
    [500, '5'],
  ])(
    'answers JSON callers of POST /messages after %i with Retry-After %s',
    async (status, wait) => {
      const { alice, sessionId } = await begin({ error: { status } });
      const path = `/messages/${sessionId}`;
      const headers = { 'idempotency-key': 'once' };
      const sent = { body: { message: 'add for me' }, headers };
      const first = await alice.request('POST', path, sent);
      const again = await alice.request('POST', path, sent);
      for (const reply of [first, again]) {
        expect([reply.status, reply.body.code]).toEqual([503, 'model_unavailable']);
        expect(reply.headers.get('retry-after')).toBe(wait);
      }
    },
    120_000,
  );

  it('POST /messages retries after Retry-After and answers', async () => {
    const busy = { error: { status: 429, headers: { 'retry-after': '0' } } };
    const { text } = await turnWith(busy, { say: [{ text: ['at last'] }] });
    expect(text).toBe('at last');
  }, 120_000);

  it.each(['drops-mid-event', 'ends-before-finish', 'malformed'] as const)(
    'keeps what had come when the stream is %s',
    async (ending) => {
      const reply = { say: [{ text: ['half an ', 'answer'] }], ending };
      const { frames, messages } = await turnWith(reply);
      expect(frames.slice(-2).map(({ event }) => event)).toEqual(['error', 'done']);
      expect(frames.at(-1)?.data).toMatchObject({ status: 'failed', failed: true });
      expect(messages.at(-1)).toMatchObject({ type: 'ai', isComplete: false });
      expect('half an answer'.startsWith(messages.at(-1).content)).toBe(true);
    },
    120_000,
  );
});
