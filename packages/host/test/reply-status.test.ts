import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Reply } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

let keys = 0;

/** Sends a message that expects JSON, with a new key. */
function send(user: TestUser, sessionId: string, body: object = {}) {
  const headers = { 'idempotency-key': `key-${keys++}` };
  const request = { body: { message: 'hello', ...body }, headers };
  const ask = (at = user) => at.request('POST', `/messages/${sessionId}`, request);
  return { reply: ask(), again: ask };
}

type Answer = Awaited<ReturnType<TestUser['request']>>;

/** What a repeated request must answer the same. */
const outcome = ({ status, body: { requestId: _, ...body }, headers }: Answer) => ({
  status,
  body,
  retryAfter: headers.get('retry-after'),
});

/** Waits until what the model said has reached the run's log. */
async function untilText(user: TestUser, sessionId: string): Promise<void> {
  const { body } = await user.request('GET', `/sessions/${sessionId}/run`);
  const response = await fetch(`${user.host.url}/runs/${body.run.runId}`, {
    headers: user.headers,
  });
  for await (const chunk of response.body ?? [])
    if (Buffer.from(chunk).includes('event: message')) return;
}

describe('the JSON reply of a turn that was', () => {
  it.each(['', 'half an ans'])(
    'aborted by its user after %j is 200 with its status',
    async (said) => {
      const sessionId = await openSession(test.alice);
      const { reply, again } = send(test.alice, sessionId);
      const turn = await test.model.next();
      if (said) turn.say(said);
      if (said) await untilText(test.alice, sessionId);
      await test.alice.request('POST', '/messages/abort', { body: { sessionId } });
      const first = await reply;
      expect(first.status).toBe(200);
      expect(Reply.parse(first.body)).toMatchObject({
        status: 'aborted',
        message: { content: said },
      });
      expect(first.body.warnings).toBeUndefined();
      expect(outcome(await again())).toEqual(outcome(first));
    },
  );

  it.each([true, false])(
    'aborted has the finish_reason length in POST /v1/chat/completions (stream: %s)',
    async (isStream) => {
      const session_id = await openSession(test.alice);
      const messages = [{ role: 'user', content: 'hello' }];
      const reply = fetch(`${test.host.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { ...test.alice.headers, 'content-type': 'application/json' },
        body: JSON.stringify({
          model: 'default',
          messages,
          metadata: { session_id },
          stream: isStream,
        }),
      });
      (await test.model.next()).say('half an ans');
      await untilText(test.alice, session_id);
      await test.alice.request('POST', '/messages/abort', { body: { sessionId: session_id } });
      const text = await (await reply).text();
      expect(text).toContain('half an ans');
      expect(text).toContain('"finish_reason":"length"');
    },
  );

  it('interrupted by another message is 200 with the text it has, and 409 without any', async () => {
    for (const said of ['half an ans', '']) {
      const sessionId = await openSession(test.alice);
      const { reply, again } = send(test.alice, sessionId);
      const turn = await test.model.next();
      if (said) turn.say(said);
      if (said) await untilText(test.alice, sessionId);
      const next = send(test.alice, sessionId, { multitask: 'interrupt' });
      const first = await reply;
      if (said)
        expect(first.body).toMatchObject({ status: 'interrupted', message: { content: said } });
      else expect([first.status, first.body.code]).toEqual([409, 'turn_interrupted']);
      (await test.model.next()).answer('next');
      await next.reply;
      expect(outcome(await again())).toEqual(outcome(first));
    }
  });

  it('failed is 200 with the text it has and the reason, and an error without any', async () => {
    for (const said of ['half an ans', '']) {
      const sessionId = await openSession(test.alice);
      const { reply, again } = send(test.alice, sessionId);
      const turn = await test.model.next();
      if (said) turn.say(said);
      turn.fail({ message: 'Incorrect API key', code: 401 });
      const first = await reply;
      if (said) {
        expect(first.status).toBe(200);
        expect(Reply.parse(first.body)).toMatchObject({
          status: 'failed',
          message: { content: said },
          warnings: [{ code: 'model_unavailable', message: expect.any(String) }],
        });
      } else {
        expect([first.status, first.body.code]).toEqual([503, 'model_unavailable']);
        expect(first.headers.get('retry-after')).toBeNull();
      }
      expect(outcome(await again())).toEqual(outcome(first));
    }
  });
});

describe('POST /messages in JSON while the host stops', () => {
  const start = async (model: ControlledModel, dataDir: string): Promise<TestHost> =>
    startHost({ env: { ...model.env, DATA_DIR: dataDir } });

  it.each(['', 'half an ans'])(
    'after %j: 503 host_stopping and the next attempt for the retries after the restart, or what there is',
    async (said) => {
      const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-reply-'));
      const model = await startControlledModel();
      const host = await start(model, dataDir);
      const alice = new TestUser(host);
      const sessionId = await openSession(alice);
      const { reply, again } = send(alice, sessionId);
      const turn = await model.next();
      if (said) turn.say(said);
      if (said) await untilText(alice, sessionId);
      const closed = host.app.close(0);
      const first = await reply;
      await closed;
      if (said)
        expect(first.body).toMatchObject({ status: 'interrupted', message: { content: said } });
      else expect([first.status, first.body.code]).toEqual([503, 'host_stopping']);
      const restarted = await start(model, dataDir);
      const back = alice.at(restarted);
      if (said) expect(outcome(await again(back))).toEqual(outcome(first));
      else {
        const retries = Array.from({ length: 10 }, () => again(back));
        (await model.next()).answer('at last');
        const answers = await Promise.all(retries);
        expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
        expect(answers[0]?.body).toMatchObject({
          status: 'finished',
          message: { content: 'at last' },
        });
        expect(model.arrived).toBe(0);
        const { body } = await back.request('GET', `/messages/${sessionId}`);
        const contents = body.messages.map((message: { content: string }) => message.content);
        expect(contents).toEqual(['hello', 'at last']);
        expect(body.messages[1]).toMatchObject({ isComplete: true });
      }
      await restarted.close();
      model.close();
      await rm(dataDir, { recursive: true });
    },
  );
});

describe('an unknown time zone', () => {
  const unknown = 'Mars/Olympus';

  it.each([
    ['timezone', { timezone: unknown }, {}],
    ['x-timezone', {}, { 'x-timezone': unknown }],
  ])('in %s costs the time zone with a warning, not the message', async (_, fields, headers) => {
    const sessionId = await openSession(test.alice);
    const body = { message: 'hi', ...fields };
    const reply = test.alice.request('POST', `/messages/${sessionId}`, { body, headers });
    const turn = await test.model.next();
    expect(JSON.stringify(turn.body.messages)).not.toContain(unknown);
    turn.answer('hello');
    const { status, body: answer } = await reply;
    expect(status).toBe(200);
    expect(answer).toMatchObject({ status: 'finished', message: { content: 'hello' } });
    expect(answer.warnings).toEqual([
      { code: 'unknown_timezone', message: expect.stringContaining('"Mars/Olympus"') },
    ]);
    const live = await stream(test.alice, sessionId, body, headers);
    (await test.model.next()).answer('hello');
    const frames = await live.toEnd();
    const warnings = frames.filter(({ event }) => event === 'warning').map(({ data }) => data);
    expect(warnings).toMatchObject(answer.warnings);
  });

  it('in the body leaves a known one in x-timezone', async () => {
    const sessionId = await openSession(test.alice);
    const body = { message: 'hi', timezone: unknown };
    const headers = { 'x-timezone': 'Asia/Tokyo' };
    const reply = test.alice.request('POST', `/messages/${sessionId}`, { body, headers });
    const turn = await test.model.next();
    expect(turn.notes.join()).toContain('Asia/Tokyo');
    turn.finish();
    expect((await reply).body.warnings).toHaveLength(2);
  });
});
