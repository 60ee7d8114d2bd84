// @vitest-environment jsdom
import { join } from 'node:path';
import {
  type IMessage,
  useAgAction,
  useChat,
  useModels,
  useOracleSessions,
} from '@ixo/oracles-client-sdk';
import { cleanup, renderHook } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { openSession } from '../../../packages/host/test/support/stream.js';
import { useOracle } from '../../../packages/web/test/support/oracle.js';
import { PublishedUser } from './support/published-user.js';

const oracle = useOracle({}, join(import.meta.dirname, 'support/oracle-process.ts'));
const poorOracle = useOracle({ CREDITS_ENABLED: 'true', CREDITS_INITIAL_GRANT: '0' });

afterEach(() => {
  cleanup();
  localStorage.clear();
});

const newUser = () => new PublishedUser(oracle);
const overrides = () => ({ baseUrl: oracle.url });
const textOf = ({ content }: IMessage) => JSON.stringify(content);

/** With these the client shows calls of tools. */
const uiComponents = { ToolCall: () => null, Error: () => null };

interface ChatOptions {
  readonly browserTools?: NonNullable<Parameters<typeof useChat>[0]['browserTools']>;
  readonly onPaymentRequiredError?: (claims: string[]) => void;
}

/** The published chat hook in a session of its user, connected. */
async function chatOf(user: PublishedUser, sessionId: string, options: ChatOptions = {}) {
  const { result, unmount } = renderHook(
    () =>
      useChat({
        oracleDid: user.host.did,
        sessionId,
        overrides: { baseUrl: user.host.url },
        onPaymentRequiredError: () => undefined,
        uiComponents,
        ...options,
      }),
    { wrapper: user.Provider },
  );
  await expect.poll(() => result.current.isRealTimeConnected).toBe(true);
  await expect.poll(() => result.current.isLoading).toBe(false);
  return { chat: result, unmount };
}

async function openChat(options: ChatOptions = {}) {
  const user = newUser();
  const sessionId = await openSession(user);
  return { user, sessionId, ...(await chatOf(user, sessionId, options)) };
}

const texts = (chat: { current: { messages: IMessage[] } }) =>
  chat.current.messages.map(textOf).join();

describe('the published client', () => {
  it('lists, creates and deletes sessions, and lists models', async () => {
    const user = newUser();
    const { result } = renderHook(() => useOracleSessions(user.host.did, overrides()), {
      wrapper: user.Provider,
    });
    await expect.poll(() => result.current.isLoading).toBe(false);
    const session = await result.current.createSession();
    await expect
      .poll(() => result.current.sessions.map(({ sessionId }) => sessionId))
      .toEqual([session.sessionId]);
    await result.current.deleteSession(session.sessionId);
    await expect.poll(() => result.current.sessions).toEqual([]);
    const models = renderHook(() => useModels(user.host.did, overrides()), {
      wrapper: user.Provider,
    });
    await expect
      .poll(() => models.result.current.defaultModelId)
      .toBe('openai-compatible/controlled');
  });

  it('streams an answer with reasoning and a tool call, and finds it in the history', async () => {
    const { user, sessionId, chat, unmount } = await openChat();
    const sent = chat.current.sendMessage('I work in Nairobi');
    const turn = await oracle.model.next();
    turn.think('They tell where they work.');
    turn.call({ name: 'remember', input: { fact: 'Works in Nairobi' } });
    const after = await oracle.model.next();
    await expect.poll(() => JSON.stringify(chat.current.messages)).toContain('remember');
    after.say('Good to ');
    await expect.poll(() => texts(chat)).toContain('Good to');
    after.say('know');
    after.finish();
    await sent;
    await expect.poll(() => texts(chat)).toContain('Good to know');
    unmount();
    const again = await chatOf(user, sessionId);
    await expect
      .poll(() => again.chat.current.messages.map(({ type }) => type))
      .toEqual(['human', 'ai']);
    expect(texts(again.chat)).toContain('Good to know');
  });

  it('joins a running turn again', async () => {
    const { user, sessionId, chat, unmount } = await openChat();
    void chat.current.sendMessage('Tell me a story');
    const turn = await oracle.model.next();
    turn.say('Once upon ');
    await expect.poll(() => texts(chat)).toContain('Once upon');
    unmount();
    const again = await chatOf(user, sessionId);
    await expect.poll(() => texts(again.chat)).toContain('Once upon');
    turn.say('a time');
    turn.finish();
    await expect.poll(() => texts(again.chat)).toContain('Once upon a time');
    await expect.poll(() => again.chat.current.run.ended).toBe('done');
  });

  it('aborts', async () => {
    const { chat } = await openChat();
    void chat.current.sendMessage('Go on for ever');
    const turn = await oracle.model.next();
    turn.say('On and on');
    await expect.poll(() => texts(chat)).toContain('On and on');
    await chat.current.abortStream();
    await turn.left;
    await expect.poll(() => chat.current.isSending).toBe(false);
  });

  it('runs a browser tool', async () => {
    const fn = vi.fn(async () => ({ city: 'Nairobi' }));
    const browserTools = {
      where: {
        toolName: 'where',
        description: 'Where the user is',
        schema: z.object({ precise: z.boolean() }) as never,
        fn: fn as never,
      },
    };
    const { chat } = await openChat({ browserTools });
    const sent = chat.current.sendMessage('Where am I?');
    (await oracle.model.next()).call({ name: 'where', input: { precise: true } });
    const after = await oracle.model.next();
    expect(JSON.stringify(after.body.messages.at(-1))).toContain('Nairobi');
    after.say('In Nairobi');
    after.finish();
    await sent;
    expect(fn).toHaveBeenCalledExactlyOnceWith({ precise: true });
  });

  it('runs and renders an AG-UI action', async () => {
    const user = newUser();
    const sessionId = await openSession(user);
    const handler = vi.fn(() => ({ rows: 2 }));
    const render = vi.fn(() => null);
    const { result } = renderHook(
      () => {
        useAgAction({
          name: 'show_table',
          description: 'Shows a table',
          parameters: z.object({ title: z.string() }),
          handler,
          render,
        });
        return useChat({
          oracleDid: user.host.did,
          sessionId,
          overrides: overrides(),
          onPaymentRequiredError: () => undefined,
        });
      },
      { wrapper: user.Provider },
    );
    await expect.poll(() => result.current.isRealTimeConnected).toBe(true);
    const sent = result.current.sendMessage('Show it');
    (await oracle.model.next()).call({ name: 'show_table', input: { title: 'Plots' } });
    const after = await oracle.model.next();
    expect(JSON.stringify(after.body.messages.at(-1))).toContain('rows');
    after.say('There');
    after.finish();
    await sent;
    expect(handler).toHaveBeenCalledExactlyOnceWith({ title: 'Plots' });
    expect(render).toHaveBeenCalledWith(expect.objectContaining({ status: 'done' }));
  });

  it('reads the history again when messages have changed', async () => {
    const { user, sessionId, chat } = await openChat();
    const elsewhere = user.request('POST', `/messages/${sessionId}`, {
      body: { message: 'Hello' },
    });
    (await oracle.model.next()).call({ name: 'change_messages', input: {} });
    await expect.poll(() => texts(chat)).toContain('Hello');
    const after = await oracle.model.next();
    after.say('Changed');
    after.finish();
    expect((await elsewhere).status).toBe(200);
  });

  it('says which claims are to be paid', async () => {
    const user = new PublishedUser(poorOracle);
    const onPaymentRequiredError = vi.fn();
    const { chat } = await chatOf(user, await openSession(user), { onPaymentRequiredError });
    await chat.current.sendMessage('Hello').catch(() => undefined);
    await expect.poll(() => onPaymentRequiredError.mock.calls).toEqual([[[]]]);
  });
});
