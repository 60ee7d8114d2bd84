import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { definePlugin, defineTool, mediaResult } from '@sibyl/plugin-kit';
import { isValidSlackRequest } from '@slack/bolt';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { z } from 'zod';
import { scale } from '../../../scripts/test-scale.ts';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { createSchedule, readRuns } from './support/schedules.js';
import { deliver, FORM, SECRET, SlackServer, slackEvent } from './support/slack-server.js';
import { TestUser } from './support/user.js';

let slack: SlackServer;
let model: ControlledModel;
let host: TestHost;

/** Tools that ask the user, and one that draws. */
const shop = definePlugin({
  name: 'shop',
  version: '1.0.0',
  manifest: {
    title: 'Shop',
    summary: 'Buys.',
    whenToUse: [],
    category: 'test',
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'buy',
      description: 'Buys something',
      inputSchema: z.object({ what: z.string() }),
      run: async ({ what }, { interrupt }) => {
        const data = { question: `Buy ${what}?` };
        return { bought: await interrupt({ kind: 'confirmation', schema: z.boolean(), data }) };
      },
    }),
    defineTool({
      name: 'ship',
      description: 'Ships something',
      inputSchema: z.object({}),
      run: async (_, { interrupt }) =>
        interrupt({
          kind: 'input_required',
          schema: z.object({ city: z.string().min(2), express: z.boolean().optional() }),
          data: { message: 'Where to?' },
        }),
    }),
    defineTool({
      name: 'pay',
      description: 'Pays',
      inputSchema: z.object({}),
      needsApproval: true,
      run: () => ({ paid: true }),
    }),
    defineTool({
      name: 'draw',
      description: 'Draws',
      inputSchema: z.object({}),
      run: () =>
        mediaResult({ mediaType: 'image/png', data: Buffer.from('drawn'), description: 'a plot' }),
    }),
  ],
});

beforeAll(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env, ...slack.env }, plugins: [shop] });
});
afterAll(async () => {
  await host?.close();
  model?.close();
  slack?.stop();
});
beforeEach(() => {
  for (const list of [slack.posts, slack.responses, slack.uploads]) list.splice(0);
});

/** Slack waits for three seconds; a busy machine may take longer. */
const MAX_REPLY_MS = scale(3_000, 60_000);

/** What Slack receives at once. */
async function deliverForm(form: object) {
  const startedAt = performance.now();
  const reply = await deliver(host, form, asForm);
  expect(performance.now() - startedAt).toBeLessThan(MAX_REPLY_MS);
  return reply;
}

const asForm = { headers: { 'content-type': FORM } };

/** Sends a slash command; what Slack shows at once. */
async function command(text: string, more: object = {}) {
  const trigger = randomUUID();
  const { status, body } = await deliverForm({
    command: '/oracle',
    text,
    team_id: 'T1',
    user_id: 'U1',
    channel_id: 'C1',
    channel_name: 'general',
    trigger_id: trigger,
    response_url: `${slack.url}/respond`,
    ...more,
  });
  expect(status).toBe(200);
  return { trigger, reply: body as { text: string; blocks?: object[] } };
}

/** Sends an interaction; what Slack acts upon. */
async function interact(payload: object) {
  const trigger = randomUUID();
  const whole = {
    team: { id: 'T1' },
    user: { id: 'U1' },
    trigger_id: trigger,
    response_url: `${slack.url}/respond`,
    ...payload,
  };
  const { status, body } = await deliverForm({ payload: JSON.stringify(whole) });
  expect(status).toBe(200);
  return { trigger, reply: body as Record<string, unknown> };
}

/** Presses a button of a post. */
function press(label: string, more: object = {}) {
  const found = slack.posts.flatMap((post) =>
    (slack.buttons.get(post.ts) ?? []).map((button) => ({ post, button })),
  );
  const pressed = found.findLast(({ button }) => button.text.text === label);
  if (!pressed) throw new Error(`There is no button ${label}`);
  const { post, button } = pressed;
  return interact({
    type: 'block_actions',
    channel: { id: post.channel },
    message: { ts: post.ts, thread_ts: post.thread },
    actions: [{ action_id: button.action_id, value: button.value }],
    ...more,
  });
}

const submit = (callbackId: string, values: Record<string, string>, metadata = '') =>
  interact({
    type: 'view_submission',
    view: {
      id: randomUUID(),
      callback_id: callbackId,
      private_metadata: metadata,
      state: {
        values: Object.fromEntries(
          Object.entries(values).map(([name, value]) => [name, { input: { value } }]),
        ),
      },
    },
  });

const readTexts = () => slack.posts.map(({ text }) => text);
const hasButton = (label: string) =>
  [...slack.buttons.values()].flat().some(({ text }) => text.text === label);

describe("Bolt's verifier and POST /slack/events agree", () => {
  const sign = (secret: string, timestamp: number, body: string) =>
    `v0=${createHmac('sha256', secret).update(`v0:${timestamp}:${body}`).digest('hex')}`;
  const now = Math.floor(Date.now() / 1000);
  const body = 'command=%2Foracle&text=help&ssl_check=1';

  it.each([
    ['a genuine form', SECRET, now, body],
    ['another secret', 'guessed', now, body],
    ['an old one', SECRET, now - 400, body],
    ['a changed body', SECRET, now, `${body}&user_id=U2`],
  ])('on %s', async (_, secret, timestamp, sent) => {
    const signature = sign(secret, timestamp, body);
    const headers = {
      'x-slack-signature': signature,
      'x-slack-request-timestamp': timestamp,
    };
    const isValid = isValidSlackRequest({ signingSecret: SECRET, body: sent, headers });
    const { status } = await fetch(`${host.url}/slack/events`, {
      method: 'POST',
      headers: {
        'content-type': FORM,
        'x-slack-signature': signature,
        'x-slack-request-timestamp': String(timestamp),
      },
      body: sent,
    });
    expect(status).toBe(isValid ? 200 : 401);
  });
});

describe('a slash command', () => {
  it('is acknowledged before the model answers, and answered privately', async () => {
    const { reply } = await command('what is soil?');
    expect(reply).toEqual({ response_type: 'ephemeral', text: '_Thinking…_' });
    const turn = await model.next();
    expect(turn.body.messages.at(-1).content).toBe('what is soil?');
    turn.answer('**Earth**');
    await expect
      .poll(() => slack.responses)
      .toEqual([{ response_type: 'ephemeral', replace_original: false, text: '*Earth*' }]);
    expect(slack.posts).toEqual([]);
  });

  it('continues its conversation until the user asks for a new one', async () => {
    await command('my plot is A1', { channel_id: 'C2' });
    (await model.next()).answer('Noted');
    await expect.poll(() => slack.responses.length).toBe(1);
    await command('which plot?', { channel_id: 'C2' });
    const second = await model.next();
    expect(JSON.stringify(second.body.messages)).toContain('my plot is A1');
    second.answer('A1');
    await expect.poll(() => slack.responses.length).toBe(2);
    expect((await command('new', { channel_id: 'C2' })).reply.text).toContain('new conversation');
    await command('which plot?', { channel_id: 'C2' });
    const third = await model.next();
    expect(JSON.stringify(third.body.messages)).not.toContain('my plot is A1');
    third.answer('Unknown');
    await expect.poll(() => slack.responses.length).toBe(3);
  });

  it('posts a long answer in the direct conversation', async () => {
    await command('everything, please', { channel_id: 'C3' });
    const lines = Array.from({ length: 500 }, (_, i) => `line ${i} ${'x'.repeat(30)}`);
    (await model.next()).answer(lines.join('\n'));
    await expect.poll(() => readTexts().join('\n')).toBe(lines.join('\n'));
    expect(new Set(slack.posts.map(({ channel }) => channel))).toEqual(new Set(['DU1']));
  });

  it('explains itself, and stops what is running', async () => {
    expect((await command('help')).reply.text).toContain('/oracle preferences');
    expect((await command('stop', { channel_id: 'C4' })).reply.text).toBe('Nothing is running.');
    await command('a long story', { channel_id: 'C4' });
    (await model.next()).say('Once');
    expect((await command('stop', { channel_id: 'C4' })).reply.text).toBe('Stopped.');
    await expect.poll(() => slack.responses.at(-1)?.text).toBe('Once\n\n_Stopped._');
  });

  it('changes preferences in a modal', async () => {
    const { trigger } = await command('preferences');
    await expect.poll(() => slack.views.get(trigger)?.callback_id).toBe('preferences');
    const blocks = slack.views.get(trigger).blocks.map((one: { block_id: string }) => one.block_id);
    expect(blocks).toEqual(expect.arrayContaining(['language', 'length', 'customInstructions']));
    const wrong = await submit('preferences', { language: 'x'.repeat(36) });
    expect(wrong.reply).toMatchObject({
      response_action: 'errors',
      errors: { language: expect.any(String) },
    });
    const { reply } = await submit('preferences', { language: 'Swahili', length: 'concise' });
    expect(reply).toEqual({ response_action: 'clear' });
    await command('hello');
    const turn = await model.next();
    expect(turn.system).toContain('Swahili');
    turn.answer('Jambo');
    await submit('preferences', {});
    await expect.poll(() => slack.responses.at(-1)?.text).toBe('Jambo');
    await command('hello');
    const cleared = await model.next();
    expect(cleared.system).not.toContain('Swahili');
    cleared.answer('Hi');
    await expect.poll(() => slack.responses.at(-1)?.text).toBe('Hi');
  });
});

describe('a button', () => {
  it('stops the answer that it belongs to, but not for another user', async () => {
    await deliver(host, slackEvent({ text: 'a story' }));
    const turn = await model.next();
    turn.say('Once upon');
    await expect.poll(readTexts).toEqual(['Once upon']);
    await press('Stop', { user: { id: 'U2' } });
    turn.say(' a time');
    await expect.poll(readTexts).toEqual(['Once upon a time']);
    await press('Stop');
    await expect.poll(readTexts).toEqual(['Once upon a time\n\n_Stopped._']);
    expect(slack.buttons.get(slack.posts[0]?.ts ?? '')).toEqual([]);
  });

  it('answers a question of a tool, and the turn continues in its thread', async () => {
    const event = slackEvent({ text: 'buy milk' });
    await deliver(host, event);
    (await model.next()).call({ name: 'buy', input: { what: 'milk' } });
    await expect.poll(() => hasButton('Yes')).toBe(true);
    expect(readTexts().at(-1)).toBe('Buy milk?');
    await press('Yes', { user: { id: 'U2' } });
    await expect.poll(() => slack.responses.at(-1)?.text).toContain('another user');
    const asked = slack.posts.at(-1)?.ts ?? '';
    const buttons = slack.buttons.get(asked) ?? [];
    await press('Yes');
    const next = await model.next();
    expect(next.results.join()).toContain('true');
    next.answer('Bought.');
    await expect.poll(() => readTexts().at(-1)).toBe('Bought.');
    expect(slack.posts.at(-1)).toMatchObject({ thread: event.event.ts });
    await expect.poll(() => slack.responses.at(-1)).toMatchObject({ replace_original: true });
    expect(readTexts().at(-2)).toBe('Buy milk?\n:white_check_mark: Yes');
    expect(hasButton('Yes')).toBe(false);
    // In a window that has not been updated yet.
    slack.buttons.set(asked, buttons);
    await press('Yes');
    expect(readTexts().filter((text) => text === 'Bought.')).toHaveLength(1);
  });

  it('denies a call that needs a signed approval', async () => {
    await deliver(host, slackEvent({ text: 'pay' }));
    (await model.next()).call({ name: 'pay', input: {} });
    await expect.poll(() => hasButton('Deny')).toBe(true);
    await press('Deny');
    const next = await model.next();
    expect(next.results.join()).not.toContain('"paid"');
    next.answer('Not paid.');
    await expect.poll(() => readTexts().at(-1)).toBe('Not paid.');
  });

  it('opens a modal for what a tool needs to know; a wrong answer is refused', async () => {
    await deliver(host, slackEvent({ text: 'ship it' }));
    (await model.next()).call({ name: 'ship', input: {} });
    await expect.poll(() => hasButton('Answer…')).toBe(true);
    const { trigger } = await press('Answer…');
    await expect.poll(() => slack.views.has(trigger)).toBe(true);
    const { callback_id, private_metadata } = slack.views.get(trigger);
    const wrong = await submit(callback_id, { city: 'X' }, private_metadata);
    expect(wrong.reply).toMatchObject({ response_action: 'errors' });
    const { reply } = await submit(callback_id, { city: 'Nairobi' }, private_metadata);
    expect(reply).toEqual({ response_action: 'clear' });
    const next = await model.next();
    expect(next.results.join()).toContain('Nairobi');
    next.answer('On its way.');
    await expect.poll(() => readTexts().at(-1)).toBe('On its way.');
  });
});

describe('Socket Mode', () => {
  it('delivers messages and commands over a connection of the host, and needs no signing secret', async () => {
    const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    await once(sockets, 'listening');
    slack.socketUrl = `ws://127.0.0.1:${(sockets.address() as AddressInfo).port}`;
    const { SLACK_SIGNING_SECRET: _, ...env } = slack.env;
    const connecting = once(sockets, 'connection');
    const other = await startHost({ env: { ...model.env, ...env, SLACK_APP_TOKEN: 'xapp-1' } });
    const [socket] = (await connecting) as [WebSocket];
    const received: { envelope_id: string; payload: object }[] = [];
    socket.on('message', (data) => received.push(JSON.parse(String(data))));
    const send = (message: object) => socket.send(JSON.stringify(message));
    send({ type: 'hello' });
    const payload = slackEvent({ text: 'by socket' });
    const event = { type: 'events_api', accepts_response_payload: false };
    send({ ...event, envelope_id: 'e1', payload });
    (await model.next()).answer('heard');
    await expect.poll(readTexts).toEqual(['heard']);
    const fields = {
      ...{ command: '/oracle', text: 'help', team_id: 'T1', user_id: 'U1', channel_id: 'C1' },
      ...{ trigger_id: 'x', response_url: `${slack.url}/respond` },
    };
    const asked = { type: 'slash_commands', accepts_response_payload: true };
    send({ ...asked, envelope_id: 'e2', payload: fields });
    await expect.poll(() => received.map(({ envelope_id }) => envelope_id)).toEqual(['e1', 'e2']);
    expect(JSON.stringify(received[1]?.payload)).toContain('/oracle preferences');
    expect((await deliver(other, payload)).status).toBe(401);
    await other.close();
    await expect.poll(() => sockets.clients.size).toBe(0);
    sockets.close();
  });
});

describe('files', () => {
  const share = (name: string, bytes: Buffer, url = `${slack.url}/files/${name}`) => {
    slack.files.set(name, bytes);
    return { id: 'F1', name, mimetype: 'text/plain', size: 5, url_private_download: url };
  };

  it('of a message reach the model', async () => {
    const files = [share('plots.csv', Buffer.from('plot,carbon\nA1,42'))];
    await deliver(host, slackEvent({ text: 'what is in it?', subtype: 'file_share', files }));
    const turn = await model.next();
    expect(JSON.stringify(turn.body.messages)).toContain('A1,42');
    turn.answer('42');
    await expect.poll(readTexts).toEqual(['42']);
  });

  it('are never read from elsewhere with the token of the bot', async () => {
    const other = await new SlackServer().start();
    const url = `${other.url.replace('127.0.0.1', 'localhost')}/files/a.txt`;
    const files = [share('a.txt', Buffer.from('stolen'), url)];
    await deliver(host, slackEvent({ text: 'read it', files }));
    const turn = await model.next();
    expect(JSON.stringify(turn.body.messages)).toContain('not one of Slack');
    turn.answer('no');
    await expect.poll(readTexts).toEqual(['no']);
    other.stop();
  });

  it('are sent by the agent to the thread, texts and what tools return', async () => {
    const event = slackEvent({ text: 'as a file, please' });
    const { channel, ts: thread } = event.event;
    await deliver(host, event);
    const first = await model.next();
    expect(first.tools).toContain('send_file');
    first.call(
      { name: 'send_file', input: { filename: 'plots.csv', content: 'plot,carbon' } },
      { name: 'draw', input: {} },
    );
    (await model.next()).answer('Sent.');
    await expect.poll(readTexts).toEqual(['Sent.']);
    expect(slack.uploads).toHaveLength(2);
    expect(slack.uploads).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: 'plots.csv', content: 'plot,carbon', channel, thread }),
        expect.objectContaining({ name: 'draw-1.png', content: 'drawn', channel, thread }),
      ]),
    );
  });
});

describe('POST /schedules with resultTo', () => {
  it('posts results in the Slack channel that gave the address', async () => {
    const { reply } = await command('results', { channel_id: 'C7' });
    const resultTo = /slack_[\w-]+/.exec(reply.text)?.[0] ?? '';
    const user = new TestUser(host);
    const { id } = await createSchedule(user, { name: 'News', resultTo });
    await user.request('POST', `/schedules/${id}/run`);
    (await model.next()).answer('**Nothing** new');
    await expect
      .poll(() => slack.posts)
      .toMatchObject([{ channel: 'C7', thread: undefined, text: '*News*\n\n*Nothing* new' }]);
    await expect
      .poll(() => readRuns(user, id))
      .toMatchObject([{ delivery: { status: 'delivered', attempts: 1 } }]);
    expect((await command('results off', { channel_id: 'C7' })).reply.text).toBe('Closed.');
    const again = await user.request('PATCH', `/schedules/${id}`, { body: { resultTo } });
    expect(again.body).toMatchObject({
      statusCode: 400,
      message: [expect.stringMatching(/^resultTo/)],
    });
  });
});
