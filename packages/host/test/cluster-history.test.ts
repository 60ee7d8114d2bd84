import type { Message } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useControlledCluster } from './support/host-cluster.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import type { TestUser } from './support/user.js';

const test = useControlledCluster({});

const list = async (user: TestUser, sessionId: string): Promise<Message[]> =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages;
const contents = async (user: TestUser, sessionId: string) =>
  (await list(user, sessionId)).map(({ content }) => content).join(' ');

describe('on several hosts', () => {
  it('a message that waits at one host is withdrawn at another', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const first = await stream(here, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const second = await stream(here, sessionId, { message: 'two' });
    await second.untilEvent('run');
    const { status } = await there.request('DELETE', `/runs/${second.runId}`);
    expect(status).toBe(200);
    expect((await second.toEnd()).at(-1)?.data).toMatchObject({ status: 'aborted' });
    const again = await there.request('DELETE', `/runs/${second.runId}`);
    expect(again.body.code).toBe('not_queued');
    turn.answer('first');
    await first.toEnd();
    expect(await contents(there, sessionId)).toBe('one first');
  });

  it('edits at two hosts at the same time become siblings, and both answers are stored', async () => {
    const [here, there, elsewhere] = test.newUser();
    const sessionId = await openSession(here);
    const first = await stream(here, sessionId, { message: 'q1' });
    (await test.model.next()).answer('a1');
    await first.toEnd();
    const edits = await Promise.all(
      [here, there].map((user, i) => stream(user, sessionId, { message: `e${i}`, parentId: null })),
    );
    for (let i = 0; i < 2; i++) {
      const turn = await test.model.next();
      expect(
        turn.body.messages.filter(({ role }: { role: string }) => role === 'user'),
      ).toHaveLength(1);
      turn.answer('ok');
    }
    for (const edit of edits) await edit.toEnd();
    const [shown] = await list(elsewhere, sessionId);
    expect(shown?.siblings).toHaveLength(3);
    for (const sibling of shown?.siblings ?? []) {
      const body = { activeMessageId: sibling };
      await elsewhere.request('PATCH', `/sessions/${sessionId}`, { body });
      expect((await list(here, sessionId)).map(({ id }) => id)).toEqual([
        sibling,
        expect.any(String),
      ]);
    }
  });

  it('sockets at one host receive sessions_changed of another', async () => {
    const [here, there] = test.newUser();
    const shown = await openSession(here);
    const socket = await joinSession(here, shown);
    const other = await openSession(there);
    await socket.until('sessions_changed', ({ sessionId }) => sessionId === other);
    await there.request('DELETE', `/sessions/${other}`);
    await socket.until('sessions_changed', ({ change }) => change === 'deleted');
  });

  it('GET /search finds at one host what was said at another', async () => {
    const [here, there] = test.newUser();
    const sessionId = await openSession(here);
    const live = await stream(here, sessionId, { message: 'a tapir' });
    (await test.model.next()).answer('yes');
    await live.toEnd();
    await expect
      .poll(async () => (await there.request('GET', '/search?q=tapir')).body.results)
      .toContainEqual(expect.objectContaining({ sessionId, snippet: 'a tapir', type: 'human' }));
  });
});
