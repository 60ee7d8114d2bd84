import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { runStatement } from '../../../packages/host/test/support/cluster.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { type ClusterHost, startHosts } from '../../../packages/host/test/support/host-cluster.js';
import {
  deliver,
  SlackServer,
  slackEvent,
} from '../../../packages/host/test/support/slack-server.js';
import {
  createTestDatabase,
  type TestDatabase,
} from '../../../packages/host/test/support/test-database.js';

const JOURNAL = join(import.meta.dirname, '../../../packages/host/test/support/journal-process.ts');

let slack: SlackServer;
let model: ControlledModel;
let database: TestDatabase;
let hosts: ClusterHost[] = [];

beforeEach(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  database = await createTestDatabase('postgres');
  const env = { ...database.env, ...model.env, ...slack.env };
  hosts = await startHosts(2, { env, main: JOURNAL });
});
afterEach(async () => {
  await Promise.all(hosts.map((host) => host.close()));
  model?.close();
  slack?.stop();
  await database?.drop();
});

const run = (statement: string) => runStatement(database.env.DATABASE_URL ?? '', statement);

/** Lets the time pass for which a silent host counts as alive. */
const endLeases = () => run('update slack_inbox set lease_until = 0');

const countDone = async () =>
  (await run(`select state from slack_inbox where state = 'done'`)).length;

const countFinished = async () =>
  (await run(`select id from runs where status = 'finished'`)).length;

const readTexts = (channel: string) =>
  slack.posts.filter((post) => post.channel === channel).map(({ text }) => text);

const hasButton = (label: string) =>
  [...slack.buttons.values()].flat().some(({ text }) => text.text === label);

it('Slack shows once how a paused turn continues, although the host that asked and the one that continued it die', {
  timeout: 400_000,
}, async () => {
  const [first, second] = hosts as [ClusterHost, ClusterHost];
  const event = slackEvent({ text: 'act' });
  const { channel } = event.event;
  await deliver(first, event);
  (await model.next()).call({ name: 'act_if_approved', input: { text: 'now' } });
  await expect.poll(() => hasButton('Deny')).toBe(true);
  await expect.poll(countDone).toBe(1);
  await first.kill();
  // As if it had died before it knew that everything was asked.
  await run(`update slack_inbox set state = 'waiting' where state = 'done'`);
  await endLeases();
  await expect.poll(countDone, { timeout: 60_000 }).toBe(1);
  expect(readTexts(channel)).toHaveLength(2);
  await run('update interrupts set expires_at = 1');
  const next = await model.next();
  expect(next.results.join()).toContain('expired');
  // Slack is away when the turn ends, and the host dies.
  slack.failing.calls = 1_000_000;
  next.answer('Too late.');
  await expect.poll(countFinished).toBe(1);
  await expect.poll(() => slack.failing.calls, { timeout: 60_000 }).toBeLessThan(1_000_000);
  await second.kill();
  slack.failing.calls = 0;
  await run(`update slack_inbox set state = 'waiting' where state = 'done'`);
  await endLeases();
  await Promise.all([first.start(), second.start()]);
  await expect.poll(countDone, { timeout: 60_000 }).toBe(2);
  expect(readTexts(channel)).toEqual([
    '_I have a question._',
    expect.stringMatching(/:hourglass: Expired$/),
    'Too late.',
  ]);
  expect(hasButton('Deny')).toBe(false);
});
