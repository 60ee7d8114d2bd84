import type { ClientMessage } from '@sibyl/plugin-kit/surface';
import { describe, expect, it } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { finishTestRun, openTestSession, startTestRun } from '../../../test/support/test-runs.js';
import type { SessionKey } from '../../bus/event-bus.js';
import { readThread } from './threads.js';

const user = (id: string, text = `text of ${id}`): ClientMessage => ({ id, role: 'user', text });
const assistant = (id: string): ClientMessage => ({ id, role: 'assistant', text: 'An answer' });

describe('readThread', () => {
  const test = useStore('sqlite');

  async function open() {
    const key = await openTestSession(test.store);
    /** A turn whose question the client knows as `id`; it runs until `finish` is called. */
    const start = async (id: string) => {
      const message = { content: user(id).text };
      const started = await startTestRun(test.store, { ...key, message, clientIds: [id] });
      const finish = async (status: 'finished' | 'failed' | 'aborted' = 'finished') =>
        (await finishTestRun(test.store.runs, started.key, { content: 'An answer', status }))
          ?.message;
      return { ...started, finish };
    };
    const ask = async (id: string) => {
      const { run, finish } = await start(id);
      const answer = await finish();
      return { run, questionId: answer?.parent ?? '', answerId: answer?.id ?? '' };
    };
    const read = async (messages: readonly ClientMessage[], regenerates?: boolean) =>
      readThread(test.store, await test.store.sessions.get(key), { messages, regenerates });
    return { key, start, ask, read };
  }

  /** A question that no run has answered; returns its id. */
  async function addImported(key: SessionKey): Promise<string> {
    const said = { ...key, content: 'x', requestId: 'r', isComplete: true, type: 'human' } as const;
    return (await test.store.messages.append(said))?.id ?? '';
  }

  it('takes the message of a new conversation', async () => {
    const { read } = await open();
    expect(await read([user('u1')])).toEqual({
      type: 'message',
      text: 'text of u1',
      clientIds: ['u1'],
      origin: undefined,
      key: [['u1'], null],
    });
  });

  it.each([
    ['nothing', []],
    ['only answers', [assistant('a1'), { id: 'o1', role: 'other', text: 'x' } as const]],
  ])('refuses a conversation with %s', async (_, messages) => {
    const { read } = await open();
    await expect(read(messages)).rejects.toMatchObject({ code: 'bad_request' });
  });

  it('joins what the user has said since the last answer', async () => {
    const { read } = await open();
    const other = { id: 'o1', role: 'other', text: 'a tool' } as const;
    const messages = [user('u1'), assistant('a1'), user('u2'), other, user('u3'), assistant('a3')];
    expect(await read(messages)).toMatchObject({
      text: 'text of u2\n\ntext of u3',
      clientIds: ['u2', 'u3'],
      key: [['u2', 'u3'], null],
    });
  });

  it('takes only what is new, and appends it', async () => {
    const { read, ask } = await open();
    const { answerId } = await ask('u1');
    const added = { text: 'text of u2', clientIds: ['u2'], origin: undefined };
    expect(await read([user('u1'), assistant(answerId), user('u2')])).toMatchObject(added);
    expect(await read([user('u2')])).toMatchObject(added);
    // The client lacks the answer.
    expect(await read([user('u1'), user('u2')])).toMatchObject(added);
    expect(await read([user('u1'), assistant('unknown'), user('u2')])).toMatchObject(added);
  });

  it('appends to a turn that runs', async () => {
    const { read, start, ask } = await open();
    await ask('u1');
    const { finish } = await start('u2');
    const messages = [user('u1'), user('u2'), user('u3')];
    expect(await read(messages)).toMatchObject({ clientIds: ['u3'], origin: undefined });
    await finish();
  });

  it('begins a branch after an older answer or question', async () => {
    const { read, ask } = await open();
    const { answerId, questionId } = await ask('u1');
    await ask('u2');
    const branch = { origin: { parentId: answerId }, clientIds: ['u3'], key: [['u3'], answerId] };
    expect(await read([user('u1'), assistant(answerId), user('u3')])).toMatchObject(branch);
    expect(await read([user('u1'), user('u3')])).toMatchObject(branch);
    expect(await read([user(questionId), user('u3')])).toMatchObject(branch);
  });

  it('begins a branch in an older turn while another one runs', async () => {
    const { read, start, ask } = await open();
    const { answerId } = await ask('u1');
    const { finish } = await start('u2');
    const origin = { parentId: answerId };
    expect(await read([user('u1'), user('u3')])).toMatchObject({ origin });
    await finish();
  });

  it('begins a branch at an older question if it has no answer', async () => {
    const { read, key } = await open();
    const first = await addImported(key);
    const { key: run } = await startTestRun(test.store, { ...key, clientIds: ['u2'] });
    await finishTestRun(test.store.runs, run, { content: 'An answer' });
    const second = await startTestRun(test.store, { ...key, clientIds: ['u3'] });
    await finishTestRun(test.store.runs, second.key, { content: 'An answer' });
    const origin = { parentId: first };
    expect(await read([user(first), user('u4')])).toMatchObject({ clientIds: ['u4'], origin });
  });

  it('knows messages that it has joined, whether the client repeats all of them or one', async () => {
    const { read, key } = await open();
    const message = { content: 'text of u1\n\ntext of u2' };
    const started = await startTestRun(test.store, { ...key, message, clientIds: ['u1', 'u2'] });
    await finishTestRun(test.store.runs, started.key, { content: 'An answer' });
    for (const repeated of [[user('u1'), user('u2')], [user('u2')], [user('u1')]]) {
      expect(await read(repeated)).toMatchObject({ type: 'join' });
      expect(await read(repeated, true)).toMatchObject({ type: 'again' });
    }
    // Shorter than before, so it is not one of the parts.
    expect(await read([user('u2', 'text')])).toMatchObject({ type: 'message', clientIds: ['u2'] });
    expect(await read([user('u1'), user('u2', 'edited')])).toMatchObject({
      text: 'text of u1\n\nedited',
      clientIds: ['u1', 'u2'],
      origin: { parentId: null },
    });
    expect(await read([user('u2', 'edited')])).toMatchObject({ text: 'edited' });
  });

  it('replaces a message that was edited', async () => {
    const { read, ask } = await open();
    const { answerId } = await ask('u1');
    const { questionId } = await ask('u2');
    expect(await read([user('u1'), assistant(answerId), user('u2', 'edited')])).toEqual({
      type: 'message',
      text: 'edited',
      clientIds: ['u2'],
      origin: { parentId: answerId },
      key: ['u2', questionId],
    });
  });

  it('replaces the first message of a session', async () => {
    const { read, ask } = await open();
    await ask('u1');
    expect(await read([user('u1', 'edited')], true)).toMatchObject({
      text: 'edited',
      origin: { parentId: null },
    });
  });

  it('joins the run of a message that is only repeated, with any spaces', async () => {
    const { read, start } = await open();
    const { run, finish } = await start('u1');
    const join = { type: 'join', run: { runId: run.runId } };
    expect(await read([user('u1')])).toMatchObject(join);
    expect(await read([user('u1', ' text of u1\n')])).toMatchObject(join);
    const waiting = await start('u2');
    const joinWaiting = { type: 'join', run: { runId: waiting.run.runId, status: 'queued' } };
    expect(await read([user('u1'), user('u2')])).toMatchObject(joinWaiting);
    await finish();
    expect(await read([user('u1'), assistant('a1')], false)).toMatchObject({
      type: 'join',
      run: { runId: run.runId, status: 'finished' },
    });
  });

  it('joins the latest attempt of a turn that has continued', async () => {
    const { read, start, key } = await open();
    const { key: run } = await start('u1');
    const question = { id: 'i1', kind: 'input_required', callId: 'c1', path: '' } as const;
    await test.store.runs.pause({
      ...run,
      interrupts: [{ ...question, schema: {}, expiresInMs: 60_000 }],
      limit: 10,
      steps: [],
      request: {},
      end: { message: { content: '', isComplete: false } },
    });
    const paused = { type: 'join', run: { runId: run.runId, status: 'paused' } };
    expect(await read([user('u1')])).toMatchObject(paused);
    const { owner } = key;
    const ended = { owner, interruptId: 'i1', status: 'answered', value: 1 } as const;
    await test.store.runs.endInterrupt(ended);
    expect(await read([user('u1')])).toMatchObject({ type: 'join', run: { attempt: 2 } });
  });

  it.each(['failed', 'aborted'] as const)('answers a message again that %s', async (status) => {
    const { read, start } = await open();
    const { finish } = await start('u1');
    const questionId = (await finish(status))?.parent;
    expect(await read([user('u1')])).toEqual({ type: 'again', questionId });
  });

  it('answers a message again on demand', async () => {
    const { read, ask } = await open();
    const { questionId, answerId } = await ask('u1');
    const again = { type: 'again', questionId };
    expect(await read([user('u1'), assistant(answerId)], true)).toEqual(again);
  });

  it('answers an imported message, which no run has answered', async () => {
    const { read, key } = await open();
    const id = await addImported(key);
    expect(await read([user(id, 'x')])).toEqual({ type: 'again', questionId: id });
  });

  it('treats a message of the user with the id of an answer as new', async () => {
    const { read, ask } = await open();
    const { answerId } = await ask('u1');
    expect(await read([user(answerId, 'An answer')])).toMatchObject({ type: 'message' });
  });

  it('looks at the last 200 messages', async () => {
    const { read, ask } = await open();
    const { answerId } = await ask('u1');
    await ask('u2');
    const others = Array.from({ length: 199 }, (_, i) => assistant(`a${i}`));
    const origin = { parentId: answerId };
    const within = [user('u1'), ...others.slice(1), user('u3')];
    expect(await read(within)).toMatchObject({ clientIds: ['u3'], origin });
    expect(await read([user('u1'), ...others, user('u3')])).toMatchObject({ origin: undefined });
  });

  it('knows no message of another session', async () => {
    const { ask } = await open();
    await ask('u1');
    const { read } = await open();
    expect(await read([user('u1')])).toMatchObject({ type: 'message', clientIds: ['u1'] });
  });
});
