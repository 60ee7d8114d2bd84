import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { runHost, untilListening } from './support/process.js';
import { deliver, SlackServer, slackEvent } from './support/slack-server.js';

let slack: SlackServer;
let model: ControlledModel;
let dataDir: string;
beforeAll(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-slack-'));
});
afterAll(async () => {
  model.close();
  slack.stop();
  await rm(dataDir, { recursive: true, force: true });
});

const readText = (channel: string) =>
  slack.posts.filter((post) => post.channel === channel).map(({ text }) => text);

async function start() {
  const host = runHost({ ...model.env, ...slack.env, PORT: '0', DATA_DIR: dataDir });
  onTestFinished(() => void host.child.kill('SIGKILL'));
  return { ...host, url: await untilListening(host) };
}

function isBegunAnswerStored(): boolean {
  const file = new DatabaseSync(join(dataDir, 'sibyl.db'), { readOnly: true });
  const found = file.prepare("select 1 from frames where lines like '%The beginning%'").get();
  file.close();
  return found !== undefined;
}

it('POST /slack/events loses no message with kill -9, and answers none twice', async () => {
  const first = await start();
  const payload = slackEvent();
  const { channel } = payload.event;
  await deliver(first, payload);
  const turn = await model.next();
  turn.say('The beginning of an answer');
  await expect.poll(() => readText(channel)).toEqual(['The beginning of an answer']);
  // A turn without any text would be run again.
  await expect.poll(isBegunAnswerStored).toBe(true);
  first.child.kill('SIGKILL');
  await first.ended;
  const second = await start();
  await expect
    .poll(() => readText(channel).join())
    .toMatch(/^The beginning of an answer\n\n_Interrupted/);
  expect(await deliver(second, payload)).toMatchObject({ status: 200 });
  expect(readText(channel)).toHaveLength(1);
});

it('POST /slack/events posts why there is no answer', async () => {
  const host = await startHost({
    env: { ...model.env, ...slack.env, CREDITS_ENABLED: 'true' },
  });
  onTestFinished(() => host.close());
  const payload = slackEvent();
  await deliver(host, payload);
  await expect
    .poll(() => readText(payload.event.channel).join())
    .toMatch(/^:warning: Out of credit/);
});
