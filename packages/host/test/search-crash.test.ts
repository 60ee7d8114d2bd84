import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { ClusterHost } from './support/host-cluster.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines } from './support/test-database.js';
import { TestUser } from './support/user.js';

const KILLS = scale(10, 3);
const SESSIONS = 4;
/** Acknowledged messages between two kills. */
const PROGRESS = 15;

it.each(engines)(
  `GET /search finds every acknowledged message after ${KILLS} kills, on %s`,
  {
    timeout: 120_000 + KILLS * 30_000,
  },
  async (engine) => {
    const database = await createTestDatabase(engine);
    const host = await ClusterHost.create({ env: database.env });
    onTestFinished(async () => {
      await host.close();
      await database.drop();
    });
    await host.start();
    const alice = new TestUser(host);
    const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => openSession(alice)));
    const words: string[] = [];
    let count = 0;
    let isDone = false;
    const writing = sessions.map(async (sessionId) => {
      while (!isDone) {
        count += 1;
        // None is the beginning of another one.
        const word = `word${count}end`;
        try {
          const live = await stream(alice, sessionId, { message: `A message with ${word}` });
          await live.untilEvent('run');
          words.push(word);
          await live.untilEvent('done');
        } catch {
          // The host was killed meanwhile.
          await sleep(50);
        }
      }
    });
    for (let kill = 0; kill < KILLS; kill++) {
      const known = words.length;
      await expect.poll(() => words.length, { timeout: 60_000 }).toBeGreaterThan(known + PROGRESS);
      await host.kill();
      await host.start();
    }
    isDone = true;
    await Promise.all(writing);
    const find = async (word: string) =>
      (await alice.request('GET', `/search?q=${word}`)).body.results
        .filter(({ type }: { type?: string }) => type === 'human')
        .map(({ snippet }: { snippet: string }) => snippet);
    for (const word of words)
      await expect.poll(() => find(word), { timeout: 60_000 }).toEqual([`A message with ${word}`]);
  },
);
