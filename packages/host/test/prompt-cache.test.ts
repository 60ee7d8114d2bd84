import { defineTool } from '@sibyl/plugin-kit';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { startHost } from './support/host.js';
import { startAnthropicServer } from './support/model-servers/anthropic-server.ts';
import { startChatCompletionsServer } from './support/model-servers/chat-completions-server.ts';
import { startGoogleServer } from './support/model-servers/google-server.ts';
import { startOpenAiServer } from './support/model-servers/openai-server.ts';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const key = 'sk-test-0123456789';
const providers = {
  openai: {
    start: startOpenAiServer,
    env: (url: string) => ({ OPENAI_API_KEY: key, OPENAI_BASE_URL: url }),
    conversation: 'input',
  },
  anthropic: {
    start: startAnthropicServer,
    env: (url: string) => ({ ANTHROPIC_API_KEY: key, ANTHROPIC_BASE_URL: url }),
    conversation: 'messages',
  },
  google: {
    start: startGoogleServer,
    env: (url: string) => ({
      GOOGLE_GENERATIVE_AI_API_KEY: key,
      GOOGLE_GENERATIVE_AI_BASE_URL: url,
    }),
    conversation: 'contents',
  },
  'openai-compatible': {
    start: startChatCompletionsServer,
    env: (url: string) => ({ MODEL: 'openai-compatible/some-model', MODEL_BASE_URL: url }),
    conversation: 'messages',
  },
};
type Provider = keyof typeof providers;

const add = defineTool({
  name: 'add',
  description: 'Adds two numbers',
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  run: ({ a, b }) => a + b,
});
const plugins = [testPlugin('sums', { getTools: () => [add] })];

beforeEach(() => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() }));
afterEach(() => vi.useRealTimers());

/** The requests of three turns, each a minute after the one before. */
async function askEveryMinute(provider: Provider) {
  const { start, env } = providers[provider];
  const server = await start({ script: [{ say: [{ text: ['A fine answer.'] }] }] });
  const host = await startHost({ env: env(server.url), plugins });
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  for (const message of ['one', 'two', 'three']) {
    const live = await stream(alice, sessionId, { message, metadata: { spaceId: '!space:x' } });
    await live.toEnd();
    vi.setSystemTime(Date.now() + 60_000);
  }
  await host.close();
  await server.close();
  return server.requests
    .map(({ body }) => body)
    .filter((body) => JSON.stringify(body).includes('[Sent: '));
}

// biome-ignore lint/suspicious/noExplicitAny: the body depends on the provider
type Body = any;

/** A marked place does not change what is cached before it. */
const withoutMarks = (body: Body): Body =>
  JSON.parse(JSON.stringify(body, (name, value) => (name === 'cache_control' ? undefined : value)));

describe.each(Object.keys(providers) as Provider[])('the prompt for %s', (provider) => {
  it('a minute later shares everything but the tail', async () => {
    const { conversation } = providers[provider];
    const [first, second, third] = (await askEveryMinute(provider)).map(withoutMarks);
    for (const [before, after] of [
      [first, second],
      [second, third],
    ]) {
      const { [conversation]: said, ...rest } = before;
      const { [conversation]: saidLater, ...restLater } = after;
      expect(restLater).toEqual(rest);
      expect(saidLater.slice(0, said.length)).toEqual(said);
      // The last answer and the new message.
      expect(saidLater).toHaveLength(said.length + 2);
    }
    const times = [...JSON.stringify(third).matchAll(/\[Sent: ([^\]]+)\]/g)].map(([, at]) => at);
    expect(new Set(times).size).toBe(3);
  }, 120_000);
});

it('the prompt for Anthropic marks the ends of the system prompt and of the history', async () => {
  const [first, , third] = await askEveryMinute('anthropic');
  const mark = { type: 'ephemeral' };
  expect(first.system.at(-1).cache_control).toEqual(mark);
  const marked = third.messages.map(({ content }: Body) => content.at(-1).cache_control);
  expect(marked).toEqual([undefined, undefined, undefined, mark, undefined]);
  expect(third.cache_control).toEqual(mark);
}, 120_000);
