import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ask, call, filterFrames, say } from '../../../packages/host/test/support/ask.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { forAllUsers } from '../../../packages/host/test/support/twins.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { scale } from '../../../scripts/test-scale.ts';
import { startHomeserver, type TestHomeserver, withOracle } from './support/homeserver.js';

let home: TestHomeserver;
let model: ControlledModel;
let host: TestHost;
let dataDir: string;

beforeEach(async () => {
  home = await startHomeserver();
  model = await startControlledModel();
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-matrix-'));
  host = await start();
});

afterEach(async () => {
  await host?.close();
  model?.close();
  await home?.close();
  await rm(dataDir, { recursive: true, force: true });
});

const start = () => startHost({ env: { ...model.env, ...withOracle(home), DATA_DIR: dataDir } });

/** Has the agent save preferences; the frames of the turn. */
const save = (user: TestUser, input: object) =>
  ask({ alice: user, model }, [call(['set_user_preferences', input]), say()]);

const read = async (user: TestUser) => {
  const { status, body } = await user.request('GET', '/user-preferences');
  return { status, body };
};

const copied = () => [...home.rooms.values()].flatMap(({ state }) => [...state.values()]);
const countRequests = (line: RegExp) => home.requests.filter((one) => line.test(one.line)).length;

describe('GET /user-preferences with Matrix', () => {
  it('asks no homeserver and creates no room', async () => {
    const alice = new TestUser(host);
    expect(await read(alice)).toEqual({ status: 200, body: {} });
    await ask({ alice, model }, [say()]);
    expect(home.requests).toEqual([]);
  });

  it('returns what was saved, which is copied to the room of the user', async () => {
    const alice = new TestUser(host);
    await save(alice, { language: 'Spanish' });
    expect((await read(alice)).body).toMatchObject({ language: 'Spanish' });
    await expect.poll(copied).toEqual([expect.objectContaining({ language: 'Spanish' })]);
    await save(alice, { tone: 'warm' });
    await expect
      .poll(copied)
      .toEqual([expect.objectContaining({ language: 'Spanish', tone: 'warm' })]);
    expect(countRequests(/createRoom/)).toBe(1);
  });

  it('returns the preferences of 30 new users at once, while the homeserver limits requests', async () => {
    home.behavior.roomsLeft = 5;
    home.behavior.retryAfterMs = 60_000;
    const users = Array.from({ length: 30 }, () => new TestUser(host));
    for (const [i, user] of users.entries()) await save(user, { userName: `User ${i}` });
    for (const [i, user] of users.entries())
      expect(await read(user)).toMatchObject({ status: 200, body: { userName: `User ${i}` } });
    await expect.poll(() => copied().length).toBe(5);
    // After the first refusal it waits as long as it was asked to.
    expect(countRequests(/createRoom/)).toBe(6);
  });

  it('is copied as soon as the homeserver permits it', async () => {
    home.behavior.roomsLeft = 1;
    home.behavior.retryAfterMs = 300;
    const users = Array.from({ length: 4 }, () => new TestUser(host));
    const permitting = setInterval(() => {
      home.behavior.roomsLeft = Math.max(home.behavior.roomsLeft, 1);
    }, 300);
    try {
      for (const user of users) await save(user, { tone: 'calm' });
      await expect.poll(() => copied().length).toBe(4);
    } finally {
      clearInterval(permitting);
    }
  });

  it('is copied after a restart, when the host stopped before', async () => {
    home.behavior.roomsLeft = 0;
    await save(new TestUser(host), { tone: 'calm' });
    await expect.poll(() => countRequests(/createRoom/)).toBeGreaterThan(0);
    await host.close();
    home.behavior.roomsLeft = 1;
    home.behavior.retryAfterMs = 0;
    host = await start();
    await expect.poll(copied).toEqual([expect.objectContaining({ tone: 'calm' })]);
  });

  it('returns what only the room has, once', async () => {
    const alice = new TestUser(host);
    await save(alice, { language: 'Swahili' });
    await expect.poll(() => copied().length).toBe(1);
    await host.close();
    await forgetLocalState();
    host = await start();
    const again = alice.at(host);
    expect((await read(again)).body).toMatchObject({ language: 'Swahili' });
    const before = home.requests.length;
    expect((await read(again)).body).toMatchObject({ language: 'Swahili' });
    expect((await read(new TestUser(host))).body).toEqual({});
    expect(home.requests.length).toBe(before);
  });

  it('keeps what the room has when the database is lost', async () => {
    const alice = new TestUser(host);
    await save(alice, { language: 'Swahili' });
    await expect.poll(() => copied().length).toBe(1);
    await host.close();
    await forgetLocalState('matrix_rooms');
    host = await start();
    const again = alice.at(host);
    await save(again, { tone: 'calm' });
    const both = { language: 'Swahili', tone: 'calm' };
    await expect.poll(copied).toEqual([expect.objectContaining(both)]);
    expect((await read(again)).body).toMatchObject(both);
  });
});

/** A turn waits for the homeserver in ticks, which take longer on a busy machine. */
const MAX_DELAY_MS = scale(1_000, 60_000);

describe('a homeserver that hangs', () => {
  it('delays neither GET /user-preferences nor turns; a warning says so', async () => {
    const alice = new TestUser(host);
    await save(alice, { language: 'Finnish' });
    await expect.poll(() => copied().length).toBe(1);
    const time = async <T>(work: Promise<T>) => {
      const startedAt = performance.now();
      const result = await work;
      return { result, ms: performance.now() - startedAt };
    };
    const { ms: usualMs } = await time(ask({ alice, model }, [say()]));
    home.behavior.hangs = true;
    const file = { mxcUri: 'mxc://test/a', filename: 'a.txt', mimetype: 'text/plain' };
    const outages: string[] = [];
    // Silence is noticed with the files of the first messages; after that, nothing is asked any more.
    for (let i = 0; i < 4 && outages.length === 0; i += 1) {
      const { result: asked, ms } = await time(
        ask({ alice, model }, [say()], { attachments: [file] }),
      );
      expect(ms - usualMs).toBeLessThan(MAX_DELAY_MS);
      const warnings = filterFrames(asked, 'warning');
      expect(warnings).toContainEqual(
        expect.objectContaining({
          code: 'attachment_unreadable',
          message: 'a.txt: the homeserver does not answer',
        }),
      );
      outages.push(...warnings.filter(({ code }) => code === 'homeserver_unavailable'));
    }
    expect(outages).toHaveLength(1);
    const { turns } = await save(alice, { tone: 'calm' });
    expect(turns[0]?.system).toContain('Finnish');
    expect((await read(alice)).body).toMatchObject({ language: 'Finnish', tone: 'calm' });
    const bob = await ask({ alice: new TestUser(host), model }, [say()]);
    expect(filterFrames(bob, 'warning')).toEqual([]);
  });
});

/** Removes room state from the host's store, as an earlier version, which had it in Matrix only, would leave it. */
function forgetLocalState(...tables: readonly string[]): Promise<void> {
  return forAllUsers(dataDir, () => {
    const database = new DatabaseSync(join(dataDir, 'sibyl.db'));
    for (const table of ['room_state', 'matrix_state', ...tables])
      database.exec(`delete from ${table}`);
    database.close();
  });
}
