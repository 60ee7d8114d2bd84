import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { deliver, SlackServer, slackEvent } from './support/slack-server.js';

let slack: SlackServer;
let model: ControlledModel;
let dataDir: string;
let host: TestHost | undefined;

beforeEach(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-slack-'));
  host = await start();
});
afterEach(async () => {
  await host?.close();
  model.close();
  slack.stop();
  await rm(dataDir, { recursive: true, force: true });
});

const start = () => startHost({ env: { ...model.env, ...slack.env, DATA_DIR: dataDir } });

const texts = () => slack.posts.map(({ text }) => text);

/** How many messages the inbox keeps under a condition. */
function countInbox(where: string): unknown {
  const file = new DatabaseSync(join(dataDir, 'sibyl.db'), { readOnly: true });
  const row = file.prepare(`select count(*) as n from slack_inbox where ${where}`).get();
  file.close();
  return row?.n;
}

const readMessage = (n: number) =>
  slackEvent({
    type: 'message',
    channel_type: 'im',
    user: `U${n}`,
    channel: `D${n}`,
    ts: `${n}.1`,
  });

describe('POST /slack/events', () => {
  it('keeps messages beyond 100 concurrent answers in the inbox, and answers them later, once', {
    timeout: 120_000,
  }, async () => {
    const running: TestHost = host as TestHost;
    for (let n = 0; n < 110; n++)
      expect(await deliver(running, readMessage(n))).toMatchObject({ status: 200 });
    await expect.poll(() => countInbox("holder = '' and state = 'waiting'")).toBe(10);
    const turns: ModelTurn[] = [];
    for (let n = 0; n < 100; n++) turns.push(await model.next());
    for (const turn of turns) turn.answer('fine');
    for (let n = 0; n < 10; n++) (await model.next()).answer('fine');
    await expect
      .poll(() => texts().filter((text) => text === 'fine').length, { timeout: 60_000 })
      .toBe(110);
    expect(texts()).toHaveLength(110);
    await expect.poll(() => countInbox("state = 'done'"), { timeout: 30_000 }).toBe(110);
  });

  it('neither loses nor repeats an answer when the host stops during it', async () => {
    const payload = readMessage(1);
    await deliver(host as TestHost, payload);
    const turn = await model.next();
    turn.say('The beginning');
    await expect.poll(texts).toEqual(['The beginning']);
    const closing = host?.close();
    turn.say(' and the end');
    turn.finish();
    await closing;
    expect(texts()).toEqual(['The beginning and the end']);
    expect(countInbox("state = 'done'")).toBe(1);
    host = await start();
    expect(await deliver(host, payload)).toMatchObject({ status: 200 });
    expect(countInbox("state = 'done'")).toBe(1);
    expect(texts()).toEqual(['The beginning and the end']);
  });
});
