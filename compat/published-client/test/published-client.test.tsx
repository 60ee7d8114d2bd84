// @vitest-environment jsdom
import { join } from 'node:path';
import { type IMessage, useModels, useOracleSessions } from '@ixo/oracles-client-sdk';
import { cleanup, renderHook } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openSession } from '../../../packages/host/test/support/stream.js';
import { useOracle } from '../../../packages/web/test/support/oracle.js';
import { type ChatOptions, renderChat, renderNewChat } from './support/published-chat.js';
import { PublishedUser } from './support/published-user.js';

const oracle = useOracle({}, join(import.meta.dirname, 'support/oracle-process.ts'));
const poorOracle = useOracle({ CREDITS_ENABLED: 'true', CREDITS_INITIAL_GRANT: '0' });

afterEach(() => {
  cleanup();
  localStorage.clear();
});

const newUser = () => new PublishedUser(oracle);
const openChat = (options: ChatOptions = {}) => renderNewChat(newUser(), options);
const overrides = () => ({ baseUrl: oracle.url });
const toText = ({ content }: IMessage) => JSON.stringify(content);

const texts = (chat: { current: { messages: IMessage[] } }) =>
  chat.current.messages.map(toText).join();

describe('the published client', () => {
  it('useOracleSessions lists, creates and deletes sessions; useModels lists models', async () => {
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

  it('useChat streams an answer with reasoning and a tool call, and finds it in the history', async () => {
    const { user, sessionId, chat, unmount } = await openChat();
    const sent = chat.current.sendMessage('I work in Nairobi');
    const turn = await oracle.model.next();
    turn.think('The user says where they work.');
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
    const again = await renderChat(user, sessionId);
    await expect
      .poll(() => again.chat.current.messages.map(({ type }) => type))
      .toEqual(['human', 'ai']);
    expect(texts(again.chat)).toContain('Good to know');
  });

  it('useChat resumes a running turn', async () => {
    const { user, sessionId, chat, unmount } = await openChat();
    void chat.current.sendMessage('Write a story');
    const turn = await oracle.model.next();
    turn.say('Once upon ');
    await expect.poll(() => texts(chat)).toContain('Once upon');
    unmount();
    const again = await renderChat(user, sessionId);
    await expect.poll(() => texts(again.chat)).toContain('Once upon');
    turn.say('a time');
    turn.finish();
    await expect.poll(() => texts(again.chat)).toContain('Once upon a time');
    await expect.poll(() => again.chat.current.run.ended).toBe('done');
  });

  it('useChat ends a turn that waits for an approval as interrupted, and shows how it continues', async () => {
    const { user, sessionId, chat, unmount } = await openChat();
    const sent = chat.current.sendMessage('Go');
    const turn = await oracle.model.next();
    turn.say('Let me see. ');
    turn.call({ name: 'approved_only', input: {} });
    await sent;
    await expect.poll(() => chat.current.isSending).toBe(false);
    expect(texts(chat)).toContain('Let me see.');
    const [approval] = (await user.request('GET', '/approvals')).body.approvals;
    expect(approval.facts.sessionId).toBe(sessionId);
    await user.request('POST', `/approvals/${approval.id}`, { body: { decision: 'deny' } });
    (await oracle.model.next()).answer('Then not.');
    await expect
      .poll(async () => (await user.request('GET', `/sessions/${sessionId}/run`)).body.run.status)
      .toBe('finished');
    unmount();
    const again = await renderChat(user, sessionId);
    await expect.poll(() => texts(again.chat)).toContain('Then not.');
  });

  it('abortStream cancels the turn', async () => {
    const { chat } = await openChat();
    void chat.current.sendMessage('Keep talking');
    const turn = await oracle.model.next();
    turn.say('On and on');
    await expect.poll(() => texts(chat)).toContain('On and on');
    await chat.current.abortStream();
    await turn.left;
    await expect.poll(() => chat.current.isSending).toBe(false);
  });

  it('useChat reloads the history when messages have changed', async () => {
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

  it('onPaymentRequiredError receives the unpaid claims', async () => {
    const user = new PublishedUser(poorOracle);
    const onPaymentRequiredError = vi.fn();
    const { chat } = await renderChat(user, await openSession(user), { onPaymentRequiredError });
    await chat.current.sendMessage('Hello').catch(() => undefined);
    await expect.poll(() => onPaymentRequiredError.mock.calls).toEqual([[[]]]);
  });
});
