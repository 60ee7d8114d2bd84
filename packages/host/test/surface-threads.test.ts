import { defineRoute } from '@sibyl/plugin-kit';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createKey } from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

const Body = z.object({
  messages: z.array(
    z.object({ id: z.string(), role: z.enum(['user', 'assistant', 'other']), text: z.string() }),
  ),
  regenerates: z.boolean().optional(),
});

/** Serves clients that send a whole conversation. */
const threads = testPlugin('threads', {
  routes: ({ surface }) => [
    defineRoute({
      method: 'POST',
      path: '/threads/:id',
      auth: 'access-key',
      summary: 'Answers a conversation',
      body: Body,
      handler: async ({ caller, params, body: { messages, regenerates = false }, signal }) => {
        const turns = surface.for(caller);
        const run = await turns.continueThread({ threadId: params.id, messages, regenerates });
        let text = '';
        for await (const part of turns.read(run.runId, { signal }))
          if (part.event === 'message') text += part.data.content;
        const { runId, sessionId, messageId } = run;
        return { runId, sessionId, messageId, text };
      },
    }),
  ],
});

const test = useControlledHost({ plugins: [threads] });

const post = async (threadId: string, body: z.input<typeof Body>, user = test.alice) =>
  (await user.request('POST', `/threads/${threadId}`, { body })).body;

const user = (id: string, text: string) => ({ id, role: 'user' as const, text });
const assistant = (id: string, text = '') => ({ id, role: 'assistant' as const, text });

/** Sends a conversation and answers it; returns what the model saw of it. */
async function ask(threadId: string, body: z.input<typeof Body>, answer: string) {
  const reply = post(threadId, body);
  const turn = await Promise.race([test.model.next(), reply]);
  if (!('answer' in turn)) throw new Error(`Refused: ${JSON.stringify(turn)}`);
  turn.answer(answer);
  const seen = turn.body.messages
    .slice(1)
    .map(({ content }: { content: string }) => content.split('\n\n[Sent')[0]);
  return { ...(await reply), seen };
}

const list = async (sessionId: string) =>
  (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages.map(
    ({ content }: { content: string }) => content,
  );

describe('continueThread', () => {
  it('creates a session for the thread of each caller, and adds only new messages of the user', async () => {
    const first = await ask('a', { messages: [user('u1', 'One')] }, 'First');
    const messages = [
      user('u1', 'One'),
      assistant(first.messageId, 'changed by the client'),
      assistant('unknown', 'never said'),
      user('u2', 'Two'),
      user('u3', 'Three'),
    ];
    const second = await ask('a', { messages }, 'Second');
    expect(second.sessionId).toBe(first.sessionId);
    expect(second.seen).toEqual(['One', 'First', 'Two\n\nThree']);
    const bob = new TestUser(test.host);
    const reply = post('a', { messages: [user('u1', 'Mine')] }, bob);
    (await test.model.next()).answer('Bob');
    expect((await reply).sessionId).not.toBe(first.sessionId);
  });

  it('appends where the client sends only its last message, or lacks the answer', async () => {
    const first = await ask('last', { messages: [user('u1', 'One')] }, 'First');
    const second = await ask('last', { messages: [user('u2', 'Two')] }, 'Second');
    expect(second.seen).toEqual(['One', 'First', 'Two']);
    const messages = [user('u2', 'Two'), user('u3', 'Three')];
    const third = await ask('last', { messages }, 'Third');
    expect(third.seen).toEqual(['One', 'First', 'Two', 'Second', 'Three']);
    expect(await list(first.sessionId)).toHaveLength(6);
  });

  it('begins a branch for an edited message, and for a new one after an older answer', async () => {
    const first = await ask('edit', { messages: [user('u1', 'One')] }, 'First');
    const answered = [user('u1', 'One'), assistant(first.messageId)];
    await ask('edit', { messages: [...answered, user('u2', 'Two')] }, 'Second');
    const edited = await ask('edit', { messages: [...answered, user('u2', 'Deux')] }, 'Edited');
    expect(edited.seen).toEqual(['One', 'First', 'Deux']);
    const other = await ask('edit', { messages: [...answered, user('u9', 'Other')] }, 'Third');
    expect(other.seen).toEqual(['One', 'First', 'Other']);
    const begun = await ask('edit', { messages: [user('u1', 'Un')] }, 'Again');
    expect(begun.seen).toEqual(['Un']);
    expect(await list(first.sessionId)).toEqual(['Un', 'Again']);
    // The edited message is the one that the client knows now.
    const next = [user('u1', 'Un'), assistant(begun.messageId), user('u8', 'On')];
    expect((await ask('edit', { messages: next }, 'End')).seen).toEqual(['Un', 'Again', 'On']);
  });

  it('joins the run of a repeated message, also a concurrent one, and answers again on demand', async () => {
    const body = { messages: [user('u1', 'Once')] };
    const replies = [post('again', body), post('again', body)];
    (await test.model.next()).answer('Answered');
    const [one, two] = await Promise.all(replies);
    expect(two.runId).toBe(one.runId);
    expect((await post('again', body)).text).toBe('Answered');
    const again = await ask('again', { ...body, regenerates: true }, 'Better');
    expect(again.seen).toEqual(['Once']);
    expect(await list(one.sessionId)).toEqual(['Once', 'Better']);
  });

  it('takes the id of a session for its thread, but never that of another user', async () => {
    const { sessionId } = (await test.alice.request('POST', '/sessions')).body;
    const mine = await ask(sessionId, { messages: [user('u1', 'Here')] }, 'Yes');
    expect(mine.sessionId).toBe(sessionId);
    const reply = post(sessionId, { messages: [user('u1', 'Where')] }, new TestUser(test.host));
    const turn = await test.model.next();
    turn.answer('Elsewhere');
    expect((await reply).sessionId).not.toBe(sessionId);
    await test.alice.request('DELETE', `/sessions/${sessionId}`);
    const renewed = await ask(sessionId, { messages: [user('u1', 'Here')] }, 'New');
    expect(renewed.sessionId).not.toBe(sessionId);
  });

  it('of an access key that is narrowed to a session uses it for every thread', async () => {
    const { sessionId } = (await test.alice.request('POST', '/sessions')).body;
    const { key } = await createKey(test.alice, { session: sessionId });
    const reply = fetch(`${test.host.url}/threads/anything`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [user('u1', 'Hello')] }),
    });
    (await test.model.next()).answer('Narrow');
    expect(await (await reply).json()).toMatchObject({ sessionId, text: 'Narrow' });
  });

  it('refuses a conversation without a message of the user, and ids that are too long', async () => {
    expect((await post('none', { messages: [assistant('a1', 'x')] })).code).toBe('bad_request');
    const id = 'x'.repeat(201);
    expect((await post('long', { messages: [user(id, 'x')] })).code).toBe('bad_request');
    expect((await post(id, { messages: [user('u', 'x')] })).code).toBe('bad_request');
  });
});
