import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { defineTool } from '@sibyl/plugin-kit';
import { Message, ModelList, Reply } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const contexts: Record<string, unknown>[] = [];
const lookup = defineTool({
  name: 'lookup',
  description: 'Looks a thing up',
  inputSchema: z.object({ thing: z.string() }),
  run: ({ thing }, turn) => {
    const { user, session, state, request, toolCallId } = turn;
    contexts.push({ user, session, state, request, toolCallId, history: turn.history.length });
    if (thing === 'trouble') throw new Error('nothing found');
    return { thing, found: true };
  },
});

const test = useControlledHost({
  env: { ORACLE_NAME: 'Pythia' },
  plugins: [testPlugin('library', { getTools: () => [lookup] })],
});

const send = (sessionId: string, body: object, headers: Record<string, string> = {}) =>
  test.alice.request('POST', `/messages/${sessionId}`, { body, headers });
const history = async (sessionId: string) =>
  (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages;

/** Sends a message and has the model answer it at once. */
async function say(sessionId: string, message: string, answer = `re: ${message}`) {
  const reply = send(sessionId, { message });
  const turn = await test.model.next();
  turn.say(answer);
  turn.finish();
  return { turn, ...(await reply) };
}

describe('a message answered with JSON', () => {
  it('has the shape of the contract', async () => {
    const sessionId = await openSession(test.alice);
    const { status, headers, body } = await say(sessionId, 'hi');
    expect(status).toBe(200);
    Reply.parse(body);
    const stored = await history(sessionId);
    expect(body).toEqual({
      message: { type: 'ai', content: 're: hi', id: stored[1].id },
      sessionId,
      requestId: headers.get('x-request-id'),
      status: 'finished',
      usage: { inputTokens: 7, outputTokens: 3, cachedTokens: 0 },
    });
    for (const message of stored) Message.parse(message);
    expect(stored).toMatchObject([
      { type: 'human', content: 'hi', isComplete: true, requestId: body.requestId },
      { type: 'ai', content: 're: hi', isComplete: true, requestId: body.requestId },
    ]);
  });

  it('returns the whole transcript with returnAllMessages', async () => {
    const sessionId = await openSession(test.alice);
    await say(sessionId, 'one');
    const reply = send(sessionId, { message: 'two', returnAllMessages: true });
    const turn = await test.model.next();
    turn.say('re: two');
    turn.finish();
    expect((await reply).body.messages).toEqual(await history(sessionId));
    expect(await history(sessionId)).toHaveLength(4);
  });

  it('takes a request id of the caller’s own', async () => {
    const sessionId = await openSession(test.alice);
    const reply = send(sessionId, { message: 'hi', requestId: 'mine-1' });
    (await test.model.next()).finish();
    const { headers, body } = await reply;
    expect([headers.get('x-request-id'), body.requestId]).toEqual(['mine-1', 'mine-1']);
  });

  it('receives its request id in errors as well', async () => {
    const { headers, body } = await send('unknown', { message: 'hi', requestId: 'mine-2' });
    expect(body.code).toBe('session_not_found');
    expect([headers.get('x-request-id'), body.requestId]).toEqual(['mine-2', 'mine-2']);
  });
});

describe('the model', () => {
  it('receives its identity, the local time of the user and the history', async () => {
    const sessionId = await openSession(test.alice);
    await say(sessionId, 'my first');
    const reply = send(sessionId, { message: 'my second', timezone: 'Africa/Nairobi' });
    const turn = await test.model.next();
    const [system, ...rest] = turn.body.messages;
    turn.finish();
    await reply;
    expect(system.role).toBe('system');
    expect(system.content).toContain('Pythia');
    expect(rest.map((m: { role: string; content: string }) => [m.role, m.content])).toEqual([
      ['user', 'my first'],
      ['assistant', 're: my first'],
      ['user', 'my second'],
    ]);
    expect(turn.notes).toHaveLength(2);
    for (const note of turn.notes) expect(note).toMatch(/^\[Sent: .*\(Africa\/Nairobi\)\]$/);
  });

  it('calls tools, whose results and faults go back to it', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, {
      message: 'look',
      metadata: { spaceId: '!s', currentEntityDid: 'did:ixo:entity:1', other: 1 },
    });
    (await test.model.next()).call(
      { name: 'lookup', input: { thing: 'soil' } },
      { name: 'lookup', input: { thing: 'trouble' } },
      { name: 'lookup', input: { thong: 'x' } },
    );
    const second = await test.model.next();
    const results = second.body.messages.filter((m: { role: string }) => m.role === 'tool');
    second.say('done');
    second.finish();
    const frames = await live.toEnd();
    expect(results.map((m: { content: string }) => m.content)).toEqual([
      expect.stringContaining('"found":true'),
      expect.stringContaining('nothing found'),
      expect.stringContaining('thing'),
    ]);
    const calls = frames.filter(({ event }) => event === 'tool_call').map(({ data }) => data);
    expect(calls.filter(({ status }) => status === 'isRunning')).toHaveLength(3);
    expect(calls.filter(({ status }) => status === 'done')).toHaveLength(1);
    expect(calls.filter(({ status }) => status === 'error')).toHaveLength(2);
    expect((await history(sessionId)).at(-1).toolCalls).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          name: 'lookup',
          args: { thing: 'soil' },
          status: 'done',
          output: '{"thing":"soil","found":true}',
        }),
      ]),
    );
    expect(contexts.at(-1)).toMatchObject({
      user: { did: test.alice.did, timezone: 'UTC' },
      session: { id: sessionId, client: 'api' },
      state: {
        spaceId: '!s',
        currentEntityDid: 'did:ixo:entity:1',
        metadata: { other: 1 },
        userPreferences: {},
      },
      toolCallId: expect.any(String),
      history: 0,
    });
  });

  it('leaves to plugins what came along for them', async () => {
    const parts = {
      tools: [{ name: 'scroll', schema: { type: 'object' }, description: 'Scrolls' }],
      agActions: [{ name: 'chart', description: 'Draws', schema: {}, hasRender: true }],
      attachments: [{ mxcUri: 'mxc://a.org/b', filename: 'f.txt', mimetype: 'text/plain' }],
      mcpInvocations: { 'files.read': 'AAAA' },
    };
    const body = { message: 'look', homeServer: 'matrix.example', ...parts };
    const headers = { 'x-matrix-access-token': 'syt_matrix_token', 'x-timezone': 'Asia/Tokyo' };
    const reply = send(await openSession(test.alice), body, headers);
    (await test.model.next()).call({ name: 'lookup', input: { thing: 'soil' } });
    (await test.model.next()).finish();
    expect((await reply).status).toBe(200);
    expect(contexts.at(-1)).toMatchObject({
      request: parts,
      user: {
        timezone: 'Asia/Tokyo',
        matrix: { homeServer: 'matrix.example', accessToken: 'syt_matrix_token' },
      },
    });
    expect(JSON.stringify(test.host.log)).not.toContain('syt_matrix_token');
  });

  it('is accounted for, all its calls together', async () => {
    const sessionId = await openSession(test.alice);
    const reply = send(sessionId, { message: 'look' });
    (await test.model.next()).call({ name: 'lookup', input: { thing: 'soil' } });
    (await test.model.next()).finish();
    await reply;
    // No route shows usage yet, so the database is asked.
    const database = new DatabaseSync(join(test.host.dataDir, 'sibyl.db'), { readOnly: true });
    const query = 'select input_tokens, output_tokens from runs where session_id = ?';
    expect({ ...database.prepare(query).get(sessionId) }).toEqual({
      input_tokens: 14,
      output_tokens: 6,
    });
    database.close();
  });

  it('can be chosen from the list', async () => {
    const { body } = await test.alice.request('GET', '/models');
    ModelList.parse(body);
    expect(body.default).toBe('openai-compatible/controlled');
    expect(body.models).toContainEqual(
      expect.objectContaining({ id: 'openai-compatible/controlled', isDefault: true }),
    );
    const sessionId = await openSession(test.alice);
    const reply = send(sessionId, { message: 'hi', model: 'openai-compatible/controlled' });
    (await test.model.next()).finish();
    expect((await reply).status).toBe(200);
  });
});

describe('what goes wrong', () => {
  it('with the model is reported, and the message of the user is kept', async () => {
    const broken = await startHost({
      env: { MODEL: 'openai-compatible/x', MODEL_BASE_URL: 'http://127.0.0.1:9/v1' },
    });
    const bob = new TestUser(broken);
    const sessionId = await openSession(bob);
    const live = await stream(bob, sessionId, { message: 'are you there?' });
    const frames = await live.toEnd();
    expect(frames.map(({ event }) => event)).toEqual(['run', 'error', 'done']);
    expect(frames[1]?.data).toMatchObject({ kind: 'network', retryable: true, sessionId });
    expect(frames[2]?.data).toMatchObject({ status: 'failed', failed: true });
    const reply = await bob.request('POST', `/messages/${sessionId}`, { body: { message: 'hm' } });
    expect([reply.status, reply.body.code]).toEqual([503, 'model_unavailable']);
    const { body } = await bob.request('GET', `/messages/${sessionId}`);
    await broken.close();
    expect(body.messages.map((m: Message) => m.content)).toEqual(['are you there?', '', 'hm', '']);
    for (const failed of [body.messages[1], body.messages[3]])
      expect(failed).toMatchObject({
        type: 'ai',
        isComplete: false,
        status: 'failed',
        error: { code: 'model_unavailable', message: expect.any(String) },
      });
  }, 120_000);

  it.each([
    ['timezone', { message: 'x', timezone: 'x'.repeat(256) }, {}],
    ['idempotency-key', { message: 'x' }, { 'idempotency-key': 'a b' }],
  ])('with %s is refused by name', async (field, body, headers) => {
    const { status, body: error } = await send(await openSession(test.alice), body, headers);
    expect(status).toBe(400);
    expect(error.message[0]).toMatch(new RegExp(`^${field}: `));
  });
});
