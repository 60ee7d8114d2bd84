import type { Message } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import type { ModelTurn } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

/** Sends a message and has the model answer it at once. */
async function say(sessionId: string, message: string) {
  const reply = test.alice.request('POST', `/messages/${sessionId}`, { body: { message } });
  const turn = await test.model.next();
  turn.say(`re: ${message}`);
  turn.finish();
  return reply;
}

describe('GET /sessions/:sessionId/messages', () => {
  it('returns pages of turns, from the newest backwards and forwards', async () => {
    const sessionId = await openSession(test.alice);
    for (let i = 1; i <= 5; i++) await say(sessionId, `m${i}`);
    const page = async (query: string) =>
      (await test.alice.request('GET', `/sessions/${sessionId}/messages?${query}`)).body;
    const said = (p: { messages: Message[] }) => p.messages.map(({ content }) => content);
    const newest = await page('limit=2');
    expect(said(newest)).toEqual(['m4', 're: m4', 'm5', 're: m5']);
    expect(newest).toMatchObject({ hasOlder: true, hasNewer: false });
    const older = await page(`limit=2&before=${newest.prevCursor}`);
    expect(said(older)).toEqual(['m2', 're: m2', 'm3', 're: m3']);
    const newer = await page(`limit=10&after=${older.nextCursor}`);
    expect(said(newer)).toEqual(['m4', 're: m4', 'm5', 're: m5']);
    const oldest = await page(`limit=2&before=${older.prevCursor}`);
    expect([said(oldest), oldest.hasOlder]).toEqual([['m1', 're: m1'], false]);
  });

  it.each(['limit=0', 'limit=101', 'before=nope', 'after=nope', 'before=a&after=b', 'x=1'])(
    'refuses %s',
    async (query) => {
      const sessionId = await openSession(test.alice);
      const { status } = await test.alice.request(
        'GET',
        `/sessions/${sessionId}/messages?${query}`,
      );
      expect(status).toBe(400);
    },
  );

  it('returns the late answers of queued turns after a cursor', async () => {
    const sessionId = await openSession(test.alice);
    const send = (message: string) =>
      test.alice.request('POST', `/messages/${sessionId}`, { body: { message } });
    const one = send('one');
    const first = await test.model.next();
    const two = send('two');
    const page = async (query: string) =>
      (await test.alice.request('GET', `/sessions/${sessionId}/messages?${query}`)).body;
    await expect.poll(async () => (await page('limit=9')).messages.length).toBe(2);
    const { nextCursor } = await page('limit=9');
    first.say('re: one');
    first.finish();
    await one;
    const second = await test.model.next();
    second.say('re: two');
    second.finish();
    await two;
    const { messages } = await page(`after=${nextCursor}`);
    expect(messages.map((m: Message) => m.content)).toEqual(['one', 're: one', 'two', 're: two']);
  });

  it('is only for the user of the session', async () => {
    const sessionId = await openSession(test.alice);
    const eve = new TestUser(test.host);
    for (const path of [`/messages/${sessionId}`, `/sessions/${sessionId}/messages`])
      expect((await eve.request('GET', path)).body.code).toBe('session_not_found');
    expect((await eve.request('GET', `/sessions/${sessionId}/run`)).status).toBe(404);
  });
});

describe('GET /sessions', () => {
  it('lists the session of the latest turn first, with a title from its first turn', async () => {
    const [first] = [await openSession(test.alice), await openSession(test.alice)];
    await say(first, 'How much carbon can soil hold in the highlands of Kenya?');
    const list = async () =>
      (await test.alice.request('GET', '/sessions?limit=1')).body.sessions[0];
    expect((await list()).sessionId).toBe(first);
    await expect
      .poll(async () => (await list()).title)
      .toBe('How much carbon can soil hold in the');
  });
});

describe('a long conversation', () => {
  const SUMMARY = 'what was said before, in short';
  const isAsked = (turn: ModelTurn, question: string) =>
    turn.body.messages.at(-1).content.startsWith(question);

  /** Answers the calls of one turn: those for a summary, then the one for the answer. */
  async function answer(question: string): Promise<{ summaries: number; seen: string }> {
    for (let summaries = 0; ; summaries++) {
      const turn = await test.model.next();
      turn.say(isAsked(turn, question) ? `answer to ${question}` : SUMMARY);
      turn.finish();
      if (isAsked(turn, question)) return { summaries, seen: JSON.stringify(turn.body.messages) };
    }
  }

  it('is summarized for the model beyond the token budget, and stays complete in the store', async () => {
    const env = { ...test.model.env, TURN_CONTEXT_TOKENS: '1500' };
    const small = await startHost({ bundled: [], env });
    const bob = new TestUser(small);
    const sessionId = await openSession(bob);
    const answers = [];
    for (let i = 0; i < 5; i++) {
      const body = { message: `part ${i} ${'word '.repeat(300)}` };
      const reply = bob.request('POST', `/messages/${sessionId}`, { body });
      answers.push(await answer(`part ${i}`));
      expect((await reply).body.message.content).toBe(`answer to part ${i}`);
    }
    const { body } = await bob.request('GET', `/messages/${sessionId}`);
    await small.close();
    const shortened = answers.filter(({ summaries }) => summaries > 0);
    expect(shortened.length).toBeGreaterThan(0);
    for (const { seen } of shortened) expect(seen).toContain(SUMMARY);
    expect(body.messages).toHaveLength(10);
    expect(body.messages[0].content).toMatch(/^part 0 word/);
  });
});
