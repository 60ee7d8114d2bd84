import type { Message } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost({ bundled: [] });

/** A conversation whose model answers as the test says. */
async function openConversation() {
  const sessionId = await openSession(test.alice);
  const post = (body: object) => test.alice.request('POST', `/messages/${sessionId}`, { body });
  /** Sends a body, answers it, and returns what the model saw. */
  const send = async (body: object, answer: string) => {
    const reply = post(body);
    const turn = await test.model.next();
    turn.answer(answer);
    const { status } = await reply;
    expect(status).toBe(200);
    const seen: { role: string; content: string }[] = turn.body.messages;
    return seen.filter(({ role }) => role !== 'system').map(({ content }) => content);
  };
  const list = async (): Promise<Message[]> =>
    (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages;
  const contents = async () => (await list()).map(({ content }) => content).join(' ');
  const at = async (content: string) => {
    const found = (await list()).find((message) => message.content === content);
    if (!found) throw new Error(`No message ${content}`);
    return found;
  };
  const show = (activeMessageId: string) =>
    test.alice.request('PATCH', `/sessions/${sessionId}`, { body: { activeMessageId } });
  return { sessionId, post, send, list, contents, at, show };
}

describe('POST /messages/:sessionId with parentId', () => {
  it('makes a sibling of a message, and the model sees only the active path', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    await chat.send({ message: 'q2' }, 'a2');
    await chat.send({ message: 'q3' }, 'a3');
    const edited = await chat.at('q2');
    expect(await chat.send({ message: 'q2b', parentId: edited.parentId }, 'a2b')).toEqual([
      'q1',
      'a1',
      'q2b',
    ]);
    expect(await chat.contents()).toBe('q1 a1 q2b a2b');
    expect(await chat.send({ message: 'q4' }, 'a4')).toEqual(['q1', 'a1', 'q2b', 'a2b', 'q4']);
    const sibling = await chat.at('q2b');
    expect(sibling.siblings).toEqual([edited.id, sibling.id]);
    expect(await chat.at('q1')).not.toHaveProperty('siblings');
    expect((await chat.show(edited.id)).status).toBe(200);
    expect(await chat.contents()).toBe('q1 a1 q2 a2 q3 a3');
    expect(await chat.send({ message: 'q5' }, 'a5')).toEqual([
      'q1',
      'a1',
      'q2',
      'a2',
      'q3',
      'a3',
      'q5',
    ]);
    await chat.show(sibling.id);
    expect(await chat.contents()).toBe('q1 a1 q2b a2b q4 a4');
  });

  it('edits the first message with null', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const first = await chat.at('q1');
    expect(await chat.send({ message: 'q1b', parentId: null }, 'a1b')).toEqual(['q1b']);
    expect(await chat.contents()).toBe('q1b a1b');
    const second = await chat.at('q1b');
    expect(second).not.toHaveProperty('parentId');
    expect(second.siblings).toEqual([first.id, second.id]);
    // Nothing was left out of the conversation.
    await chat.show(first.id);
    expect(await chat.contents()).toBe('q1 a1');
  });

  it('refuses a message of another session, and both fields at once', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const other = await openConversation();
    await other.send({ message: 'x1' }, 'y1');
    const foreign = (await other.at('y1')).id;
    const post = async (body: object) => (await chat.post(body)).body.code;
    expect(await post({ message: 'q', parentId: foreign })).toBe('message_not_found');
    expect(await post({ regenerate: foreign })).toBe('message_not_found');
    expect(await post({ regenerate: foreign, message: 'q' })).toBe('validation_failed');
    expect(await post({ parentId: foreign })).toBe('validation_failed');
    expect((await chat.show(foreign)).body.code).toBe('message_not_found');
    expect(await chat.contents()).toBe('q1 a1');
  });

  it('waits behind a running turn like any message', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const second = chat.post({ message: 'q2' });
    const running = await test.model.next();
    const { parentId } = await chat.at('q2');
    const edit = chat.post({ message: 'q2b', parentId });
    await expect.poll(chat.contents).toBe('q1 a1 q2b');
    running.answer('a2');
    expect((await second).body.message.content).toBe('a2');
    const next = await test.model.next();
    expect(JSON.stringify(next.body.messages)).not.toContain('a2');
    next.answer('a2b');
    await edit;
    expect(await chat.contents()).toBe('q1 a1 q2b a2b');
    await chat.show((await chat.at('q2b')).siblings?.[0] ?? '');
    expect(await chat.contents()).toBe('q1 a1 q2 a2');
  });
});

describe('POST /messages/:sessionId with regenerate', () => {
  it('answers a question again beside its first answer', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    await chat.send({ message: 'q2' }, 'a2');
    const first = await chat.at('a2');
    expect(await chat.send({ regenerate: first.id }, 'a2b')).toEqual(['q1', 'a1', 'q2']);
    expect(await chat.contents()).toBe('q1 a1 q2 a2b');
    const again = await chat.at('a2b');
    expect(again.siblings).toEqual([first.id, again.id]);
    await chat.send({ regenerate: (await chat.at('q2')).id }, 'a2c');
    expect((await chat.at('a2c')).siblings).toHaveLength(3);
    await chat.send({ message: 'q3' }, 'a3');
    await chat.show(first.id);
    expect(await chat.contents()).toBe('q1 a1 q2 a2');
    const path = `/sessions/${chat.sessionId}/messages`;
    await chat.show((await chat.at('a2')).siblings?.[2] ?? '');
    const page = async (query: string) =>
      (await test.alice.request('GET', `${path}?${query}`)).body;
    const newest = await page('limit=2');
    expect(newest.messages.map((m: Message) => m.content)).toEqual(['q2', 'a2c', 'q3', 'a3']);
    expect(newest).toMatchObject({ hasOlder: true, hasNewer: false });
    const older = await page(`limit=1&before=${newest.prevCursor}`);
    expect(older.messages.map((m: Message) => m.content)).toEqual(['q1', 'a1']);
    const inside = await page(`limit=1&before=${(await chat.at('a2c')).id}`);
    expect(inside.messages.map((m: Message) => m.content)).toEqual(['q2', 'a2c']);
    const newer = await page(`limit=1&after=${(await chat.at('a1')).id}`);
    expect(newer.messages.map((m: Message) => m.content)).toEqual(['q2', 'a2c']);
    expect(newer.hasNewer).toBe(true);
  });

  it('is the retry of a failed turn, whose reason stays after a reload', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const failing = chat.post({ message: 'q2' });
    const turn = await test.model.next();
    turn.say('partial');
    turn.fail({ message: 'no more', type: 'invalid_request_error', code: 'invalid' });
    await failing;
    const failed = (await chat.list()).at(-1);
    expect(failed).toMatchObject({
      type: 'ai',
      isComplete: false,
      status: 'failed',
      error: { code: 'model_unavailable', message: expect.any(String) },
    });
    expect(await chat.send({ regenerate: failed?.id }, 'a2')).toEqual(['q1', 'a1', 'q2']);
    expect(await chat.contents()).toBe('q1 a1 q2 a2');
    await chat.show(failed?.id ?? '');
    expect((await chat.list()).at(-1)?.error).toEqual(failed?.error);
    // The question of the failed turn stays, its partial answer does not.
    const seen = await chat.send({ message: 'q3' }, 'a3');
    expect(seen).toContain('q2');
    expect(seen.join(' ')).not.toContain('partial');
  });
});

describe('POST /sessions/:sessionId/fork', () => {
  it('copies the path up to a message into a new session', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    await chat.send({ message: 'q2' }, 'a2');
    await chat.send({ regenerate: (await chat.at('a2')).id }, 'a2b');
    await chat.send({ message: 'q3' }, 'a3');
    const { id: messageId } = await chat.at('a2b');
    const fork = await test.alice.request('POST', `/sessions/${chat.sessionId}/fork`, {
      body: { messageId, title: 'A copy' },
    });
    expect(fork).toMatchObject({ status: 201, body: { title: 'A copy' } });
    const copied = async (): Promise<Message[]> =>
      (await test.alice.request('GET', `/messages/${fork.body.sessionId}`)).body.messages;
    const messages = await copied();
    expect(messages.map(({ content }) => content)).toEqual(['q1', 'a1', 'q2', 'a2b']);
    expect(messages.map(({ parentId }) => parentId)).toEqual([
      undefined,
      ...messages.slice(0, -1).map(({ id }) => id),
    ]);
    const path = `/messages/${fork.body.sessionId}`;
    const reply = test.alice.request('POST', path, { body: { message: 'q4' } });
    (await test.model.next()).answer('a4');
    await reply;
    expect((await copied()).at(-1)?.content).toBe('a4');
    expect(await chat.contents()).toBe('q1 a1 q2 a2b q3 a3');
    const eve = new TestUser(test.host);
    const stolen = await eve.request('POST', `/sessions/${chat.sessionId}/fork`, {
      body: { messageId },
    });
    expect(stolen.body.code).toBe('session_not_found');
  });
});

describe('DELETE /runs/:runId', () => {
  it('withdraws a message that waits, and closes the gap', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const second = chat.post({ message: 'q2' });
    const running = await test.model.next();
    const third = chat.post({ message: 'q3', requestId: 'third' });
    await expect.poll(chat.contents).toBe('q1 a1 q2 q3');
    const fourth = chat.post({ message: 'q4' });
    await expect.poll(chat.contents).toBe('q1 a1 q2 q3 q4');
    const runs = await findRuns(chat.sessionId);
    const eve = new TestUser(test.host);
    const [, runId = ''] = runs;
    expect((await eve.request('DELETE', `/runs/${runId}`)).body.code).toBe('run_not_found');
    expect((await test.alice.request('DELETE', `/runs/${runId}`)).status).toBe(200);
    expect((await third).body.code).toBe('message_withdrawn');
    expect(await chat.contents()).toBe('q1 a1 q2 q4');
    expect((await test.alice.request('DELETE', `/runs/${runId}`)).body.code).toBe('not_queued');
    expect((await test.alice.request('DELETE', `/runs/${runs[0]}`)).body.code).toBe('not_queued');
    running.answer('a2');
    await second;
    const next = await test.model.next();
    expect(JSON.stringify(next.body.messages)).not.toContain('q3');
    next.answer('a4');
    await fourth;
    expect(await chat.contents()).toBe('q1 a1 q2 a2 q4 a4');
    expect((await chat.at('q4')).parentId).toBe((await chat.at('a2')).id);
  });

  /** The runs of a session that have not ended, in order. */
  async function findRuns(sessionId: string): Promise<string[]> {
    const database = new (await import('node:sqlite')).DatabaseSync(
      `${test.host.dataDir}/sibyl.db`,
    );
    const rows = database
      .prepare(
        "select id from runs where owner = ? and session_id = ? and status in ('queued', 'running') order by turn",
      )
      .all(test.alice.did, sessionId);
    database.close();
    return rows.map(({ id }) => String(id));
  }

  it('returns to the first path when the edit that waits is withdrawn', async () => {
    const chat = await openConversation();
    await chat.send({ message: 'q1' }, 'a1');
    const second = chat.post({ message: 'q2' });
    const running = await test.model.next();
    const edit = chat.post({ message: 'q1b', parentId: null });
    await expect.poll(chat.contents).toBe('q1b');
    const again = chat.post({ regenerate: (await chat.at('q1b')).id });
    const runIds = async () => findRuns(chat.sessionId);
    await expect.poll(async () => (await runIds()).length).toBe(3);
    const [, editRun, regenerateRun] = await runIds();
    await test.alice.request('DELETE', `/runs/${regenerateRun}`);
    expect((await again).body.code).toBe('message_withdrawn');
    expect(await chat.contents()).toBe('q1b');
    await test.alice.request('DELETE', `/runs/${editRun}`);
    expect((await edit).body.code).toBe('message_withdrawn');
    expect(await chat.contents()).toBe('q1 a1 q2');
    running.answer('a2');
    await second;
    expect(await chat.contents()).toBe('q1 a1 q2 a2');
    for (const message of await chat.list()) expect(message).not.toHaveProperty('siblings');
  });
});
