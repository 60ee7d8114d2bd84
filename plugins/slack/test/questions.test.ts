import { randomUUID } from 'node:crypto';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import {
  deliver,
  FORM,
  SlackServer,
  slackEvent,
} from '../../../packages/host/test/support/slack-server.js';

let slack: SlackServer;
let model: ControlledModel;
let host: TestHost;

const shop = definePlugin({
  name: 'shop',
  version: '1.0.0',
  manifest: {
    title: 'Shop',
    summary: 'Ships.',
    whenToUse: [],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'buy',
      description: 'Buys something',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) =>
        interrupt({
          kind: 'confirmation',
          schema: z.boolean(),
          data: 'Buy it?',
          expiresInSeconds: 1,
        }),
    }),
    defineTool({
      name: 'ship',
      description: 'Ships something',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) => {
        const schema = z.object({ city: z.string() });
        const { city } = await interrupt({ kind: 'input_required', schema, data: 'Where to?' });
        const data = `Ship to ${city}?`;
        return { ok: await interrupt({ kind: 'confirmation', schema: z.boolean(), data }) };
      },
    }),
  ],
});

beforeAll(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  // Questions expire for all users together.
  const env = { ...model.env, ...slack.env };
  host = await startHost({ env, plugins: [shop], hasTwins: false });
});
afterAll(async () => {
  await host?.close();
  model?.close();
  slack?.stop();
});

const deliverForm = (form: object) => deliver(host, form, { headers: { 'content-type': FORM } });

/** Sends an interaction of the user; returns its trigger. */
async function interact(payload: object): Promise<string> {
  const trigger = randomUUID();
  const who = { team: { id: 'T1' }, user: { id: 'U1' }, trigger_id: trigger };
  const { status } = await deliverForm({ payload: JSON.stringify({ ...who, ...payload }) });
  expect(status).toBe(200);
  return trigger;
}

/** The newest post with this button. */
const findButton = (label: string) =>
  slack.posts
    .flatMap((post) => (slack.buttons.get(post.ts) ?? []).map((button) => ({ post, button })))
    .findLast(({ button }) => button.text.text === label);

/** Presses a button as soon as there is one. */
async function press(label: string): Promise<string> {
  await expect.poll(() => findButton(label)).toBeDefined();
  const { post, button } = findButton(label) ?? expect.unreachable();
  return interact({
    type: 'block_actions',
    channel: { id: post.channel },
    message: { ts: post.ts, thread_ts: post.thread },
    actions: [{ action_id: button.action_id, value: button.value }],
  });
}

describe('a question without an answer in Slack', () => {
  it('shows that it has expired, without buttons, and the thread gets the answer', async () => {
    const event = slackEvent({ text: 'buy it' });
    const { channel, ts: thread } = event.event;
    await deliver(host, event);
    (await model.next()).call({ name: 'buy', input: {} });
    const next = await model.next();
    expect(next.results.join()).toContain('expired');
    next.answer('Not bought.');
    const posts = () => slack.posts.filter((post) => post.channel === channel);
    await expect.poll(() => posts().at(-1)).toMatchObject({ thread, text: 'Not bought.' });
    expect(posts().map(({ text }) => text)).toEqual([
      '_I have a question._',
      'Buy it?\n:hourglass: Expired',
      'Not bought.',
    ]);
    expect(posts().flatMap(({ ts }) => slack.buttons.get(ts) ?? [])).toEqual([]);
  });
});

describe('a slash command', () => {
  it('shows every question of its turn, and Stop ends this turn', async () => {
    await deliverForm({
      command: '/oracle',
      text: 'ship it',
      team_id: 'T1',
      user_id: 'U1',
      channel_id: 'C1',
      channel_name: 'general',
      trigger_id: randomUUID(),
      response_url: `${slack.url}/respond`,
    });
    (await model.next()).call({ name: 'ship', input: {} });
    const trigger = await press('Answer…');
    await expect.poll(() => slack.views.has(trigger)).toBe(true);
    const { callback_id, private_metadata } = slack.views.get(trigger);
    const state = { values: { city: { input: { value: 'Nairobi' } } } };
    const view = { id: randomUUID(), callback_id, private_metadata, state };
    await interact({ type: 'view_submission', view });
    await press('Yes');
    expect(slack.posts.map(({ versions }) => versions[0])).toContain('Ship to Nairobi?');
    const next = await model.next();
    expect(next.results.join()).toContain('true');
    next.say('It is on');
    await expect.poll(() => slack.posts.at(-1)?.text).toBe('It is on');
    await press('Stop');
    await expect.poll(() => slack.posts.at(-1)?.text).toBe('It is on\n\n_Stopped._');
    const texts = slack.posts.map(({ text }) => text);
    expect(texts).toContain('Where to?\n:white_check_mark: Answered');
    expect(texts).toContain('Ship to Nairobi?\n:white_check_mark: Yes');
  });
});
