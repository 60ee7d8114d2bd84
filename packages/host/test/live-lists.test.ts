import type { SearchResults, SessionsChangedEvent } from '@sibyl/protocol';
import { SseParser } from '@sibyl/protocol/sse-parser';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { joinSession } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost({ bundled: [] });

/** Reads changes of the user's sessions until the test ends. */
async function watch(user: TestUser) {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const response = await fetch(`${user.host.url}/sessions/events`, {
    headers: user.headers,
    signal: stop.signal,
  });
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  const changes: SessionsChangedEvent[] = [];
  const parser = new SseParser();
  const read = async () => {
    for await (const chunk of response.body ?? [])
      for (const { event, data } of parser.push(new TextDecoder().decode(chunk)))
        if (event === 'sessions_changed') changes.push(JSON.parse(data));
  };
  const ended = read().catch(() => undefined);
  const seen = (sessionId: string) =>
    changes.filter((each) => each.sessionId === sessionId).map(({ change }) => change);
  return { changes, seen, ended };
}

describe('GET /sessions/events', () => {
  it('reports what happens to the sessions of a user, and only theirs', async () => {
    const { seen, changes } = await watch(test.alice);
    const eve = await watch(new TestUser(test.host));
    const sessionId = await openSession(test.alice);
    const reply = test.alice.request('POST', `/messages/${sessionId}`, { body: { message: 'hi' } });
    (await test.model.next()).answer('hello');
    await reply;
    await expect.poll(() => seen(sessionId)).toContain('titled');
    await test.alice.request('PATCH', `/sessions/${sessionId}`, { body: { title: 'Named' } });
    await test.alice.request('DELETE', `/sessions/${sessionId}`);
    await expect.poll(() => seen(sessionId)).toContain('deleted');
    expect(new Set(seen(sessionId))).toEqual(
      new Set(['created', 'turn_started', 'turn_ended', 'titled', 'renamed', 'deleted']),
    );
    expect(seen(sessionId)[0]).toBe('created');
    expect(seen(sessionId).at(-1)).toBe('deleted');
    expect(changes.every(({ timestamp }) => !Number.isNaN(Date.parse(timestamp)))).toBe(true);
    expect(eve.changes).toEqual([]);
  });

  it('is refused without a token, and ends when the host stops', async () => {
    expect((await fetch(`${test.host.url}/sessions/events`)).status).toBe(401);
    const host = await startHost({ bundled: [] });
    const { ended } = await watch(new TestUser(host));
    await host.close();
    await ended;
  });

  it('takes one of the streams of the user', async () => {
    const host = await startHost({ bundled: [], env: { STREAMS_PER_USER: '1' } });
    onTestFinished(() => host.close());
    const user = new TestUser(host);
    await watch(user);
    const second = await fetch(`${host.url}/sessions/events`, { headers: user.headers });
    expect([second.status, (await second.json()).code]).toEqual([429, 'too_many_streams']);
  });
});

describe('GET /search', () => {
  const search = async (user: TestUser, query: string) =>
    (await user.request('GET', `/search?${query}`)).body;

  it('finds messages of the caller soon after their turn, ranked and highlighted', async () => {
    const user = new TestUser(test.host);
    const sessionId = await openSession(user);
    const reply = user.request('POST', `/messages/${sessionId}`, {
      body: { message: 'Where do pangolins live?' },
    });
    (await test.model.next()).answer(
      'Pangolins live in Africa and Asia. <b>Pangolins</b> eat ants.',
    );
    await reply;
    const find = async (): Promise<SearchResults> => search(user, 'q=pangolins+live');
    const findAnswer = async () => (await find()).results.find(({ type }) => type === 'ai');
    // The question can be found before its answer.
    await expect.poll(findAnswer).toBeDefined();
    const { results, hasMore } = await find();
    expect(results.length).toBeGreaterThanOrEqual(2);
    expect(hasMore).toBe(false);
    const answer = await findAnswer();
    expect(answer).toMatchObject({ sessionId, messageId: expect.any(String) });
    const words = answer?.highlights.map(([start, end]) => answer.snippet.slice(start, end));
    expect(words).toEqual(['Pangolins', 'live', 'Pangolins']);
    const page = await search(user, 'q=pangolins+live&limit=1');
    expect([page.results.length, page.hasMore]).toEqual([1, true]);
    expect((await search(new TestUser(test.host), 'q=pangolins')).results).toEqual([]);
    await user.request('DELETE', `/sessions/${sessionId}`);
    expect((await find()).results).toEqual([]);
  });

  it.each(['', 'q=', 'q=%22-%22', 'q=a&limit=0', 'q=a&limit=51', 'q=a&offset=1001', 'q=a&x=1'])(
    'refuses %j',
    async (query) => {
      expect((await search(test.alice, query)).code).toBe('validation_failed');
    },
  );

  it('is refused without a token', async () => {
    expect((await fetch(`${test.host.url}/search?q=a`)).status).toBe(401);
  });
});

describe('sockets', () => {
  it('receive sessions_changed for every session of their user', async () => {
    const shown = await openSession(test.alice);
    const socket = await joinSession(test.alice, shown);
    await openSession(new TestUser(test.host));
    const other = await openSession(test.alice);
    const expected = [{ sessionId: other, change: 'created' }];
    await expect.poll(() => socket.all('sessions_changed')).toMatchObject(expected);
  });
});
