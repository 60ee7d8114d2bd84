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

const textOf = (channel: string) =>
  slack.posts.filter((post) => post.channel === channel).map(({ text }) => text);

async function start() {
  const host = runHost({ ...model.env, ...slack.env, PORT: '0', DATA_DIR: dataDir });
  onTestFinished(() => void host.child.kill('SIGKILL'));
  return { ...host, url: await untilListening(host) };
}

/** Lets the minute pass for which a silent process counts as alive. */
function endLeases(): void {
  const file = new DatabaseSync(join(dataDir, 'sibyl.db'));
  file.exec('update slack_inbox set lease_until = 0');
  file.close();
}

it('loses no message to kill -9: the answer goes on where it is, and nothing is answered twice', async () => {
  const first = await start();
  const payload = slackEvent();
  const { channel } = payload.event;
  await deliver(first, payload);
  const turn = await model.next();
  turn.say('The beginning of an answer');
  await expect.poll(() => textOf(channel)).toEqual(['The beginning of an answer']);
  first.child.kill('SIGKILL');
  await first.ended;
  endLeases();
  const second = await start();
  await expect
    .poll(() => textOf(channel).join())
    .toMatch(/^The beginning of an answer\n\n_Interrupted/);
  expect(await deliver(second, payload)).toMatchObject({ status: 200 });
  expect(textOf(channel)).toHaveLength(1);
});

it('tells a user why they get no answer', async () => {
  const host = await startHost({
    env: { ...model.env, ...slack.env, CREDITS_ENABLED: 'true' },
  });
  onTestFinished(() => host.close());
  const payload = slackEvent();
  await deliver(host, payload);
  await expect.poll(() => textOf(payload.event.channel).join()).toMatch(/^:warning: Out of credit/);
});
