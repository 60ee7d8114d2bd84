import type { Message } from '@sibyl/protocol';
import { beforeAll, expect, it } from 'vitest';
import { openStore } from '../src/store/store.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { readSlowly } from './support/read-slowly.js';
import { openSession } from './support/stream.js';
import { usedMemory } from './support/used-memory.js';
import { TestUser } from './support/user.js';

const TURNS = 500;
const ANSWER = 'y'.repeat(100_000);
const SESSION_MB = (TURNS * ANSWER.length) / 1024 ** 2;
const READERS = 10;

/** What plugins were shown of the conversation, turn by turn. */
const shown: (readonly Message[])[] = [];
const test = useControlledHost({
  env: { STREAM_STALL_SECONDS: '1' },
  plugins: [
    testPlugin('reader', {
      getRequestTools: ({ history }) => {
        shown.push(history);
        return [];
      },
    }),
  ],
});

let alice: TestUser;
let sessionId: string;
beforeAll(async () => {
  alice = test.alice;
  sessionId = await openSession(alice);
  const store = await openStore({ dataDir: test.host.dataDir, secretKey: new Uint8Array(32) });
  const place = { owner: alice.did, sessionId, requestId: 'r', isComplete: true };
  for (let i = 1; i <= TURNS; i++) {
    const said = store.messages.append({ ...place, type: 'human', content: `question ${i}` });
    await Promise.all([said, store.messages.append({ ...place, type: 'ai', content: ANSWER })]);
  }
  await store.close();
}, 120_000);

it('long histories cost a turn no more memory than TURN_CONTEXT_TOKENS allows', async () => {
  const before = usedMemory();
  const reply = alice.request('POST', `/messages/${sessionId}`, { body: { message: 'new' } });
  const summary = await test.model.next();
  expect(summary.system).toMatch(/^Write a summary/);
  expect(usedMemory() - before).toBeLessThan(SESSION_MB / 4);
  summary.answer('They asked many things.');
  const turn = await test.model.next();
  const asked: { content: string }[] = turn.body.messages;
  expect(asked.at(-1)?.content).toBe('new');
  expect(asked.at(-3)?.content).toBe(`question ${TURNS}`);
  turn.answer('done');
  expect((await reply).status).toBe(200);
  expect(shown[0]?.length).toBeGreaterThan(20);
  expect(shown[0]?.length).toBeLessThan(TURNS / 5);
});

it('GET /messages/:sessionId sends long histories completely', async () => {
  const { status, body } = await alice.request('GET', `/messages/${sessionId}`);
  expect(status).toBe(200);
  const messages: Message[] = body.messages;
  expect(messages).toHaveLength(2 * TURNS + 2);
  const questions = messages.filter(({ type }) => type === 'human').map(({ content }) => content);
  const expected = Array.from({ length: TURNS }, (_, i) => `question ${i + 1}`);
  expect(questions).toEqual([...expected, 'new']);
  expect(messages.filter(({ content }) => content === ANSWER)).toHaveLength(TURNS);
});

it('GET /messages/:sessionId keeps no pages in memory for clients that read nothing', async () => {
  const before = usedMemory();
  const slow = await Promise.all(
    Array.from({ length: READERS }, () => readSlowly(alice, `/messages/${sessionId}`)),
  );
  // If the host held what they have not read, it would be all of it times their number.
  expect(usedMemory() - before).toBeLessThan(SESSION_MB);
  const dropped = () => test.host.log.filter(({ msg }) => `${msg}`.startsWith('request aborted'));
  await expect.poll(() => dropped().length).toBe(READERS);
  for (const socket of slow) socket.destroy();
});
