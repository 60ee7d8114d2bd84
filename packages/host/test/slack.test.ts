import { definePlugin } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { deliver, SlackServer, slackEvent } from './support/slack-server.js';

let slack: SlackServer;
let model: ControlledModel;
let host: TestHost;

/** The users and clients of all turns. */
const turns: { readonly client: string; readonly did: string }[] = [];
const witness = definePlugin({
  name: 'witness',
  version: '1.0.0',
  manifest: { title: 'Witness', summary: 'Sees turns.', whenToUse: [], category: 'test' },
  getMiddlewares: () => [
    {
      name: 'witness',
      wrapModel: (request, next, { session, user }) => {
        turns.push({ client: session.client, did: user.did });
        return next(request);
      },
    },
  ],
});

beforeAll(async () => {
  slack = await new SlackServer().start();
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env, ...slack.env }, plugins: [witness] });
});
afterAll(async () => {
  await host?.close();
  model?.close();
  slack?.stop();
});
beforeEach(() => slack.posts.splice(0));

const direct = { type: 'message', channel_type: 'im' };
const readText = (channel: string) =>
  slack.posts.filter((post) => post.channel === channel).map(({ text }) => text);

/** Delivers a message and lets the model answer it. */
async function ask(event: Record<string, unknown>, answer = 'Hi there') {
  const payload = slackEvent(event);
  const { channel } = payload.event;
  expect(await deliver(host, payload)).toEqual({ status: 200, body: { ok: true } });
  const turn = await model.next();
  turn.say(answer);
  turn.finish();
  await expect.poll(() => readText(channel).at(-1)).toBe(answer);
  return { payload, turn, channel };
}

it('POST /slack/events answers the URL verification', async () => {
  const payload = { type: 'url_verification', challenge: 'abc', token: 'old' };
  expect(await deliver(host, payload)).toEqual({
    status: 200,
    body: { ok: true, challenge: 'abc' },
  });
});

it('an answer whose message is deleted in Slack while it streams is posted again', async () => {
  const payload = slackEvent({ ...direct, text: 'are you there?' });
  const { channel } = payload.event;
  await deliver(host, payload);
  const turn = await model.next();
  turn.say('One');
  await expect.poll(() => readText(channel)).toEqual(['One']);
  slack.posts.splice(0);
  turn.say(' and two');
  turn.finish();
  await expect.poll(() => readText(channel)).toEqual(['One and two']);
});

it('POST /slack/events answers a mention in its thread, in mrkdwn', async () => {
  const payload = slackEvent({ text: '<@UBOT> what is &lt;b&gt;?' });
  const { channel, ts } = payload.event;
  await deliver(host, payload);
  const turn = await model.next();
  expect(turn.body.messages.at(-1)).toMatchObject({ role: 'user', content: 'what is <b>?' });
  turn.say('**Bold** [text](https://a.b) <!channel>');
  turn.finish();
  await expect
    .poll(() => readText(channel))
    .toEqual(['*Bold* <https://a.b|text> &lt;!channel&gt;']);
  expect(slack.posts.at(-1)).toMatchObject({ channel, thread: ts });
  expect([...slack.tokens]).toEqual(['Bearer xoxb-test']);
});

it('POST /slack/events updates the answer while it is written', async () => {
  const payload = slackEvent();
  const { channel } = payload.event;
  await deliver(host, payload);
  const turn = await model.next();
  await expect.poll(() => readText(channel)).toEqual(['_Thinking…_']);
  turn.say('One ');
  await expect.poll(() => readText(channel)).toEqual(['One ']);
  turn.say('two ');
  await expect.poll(() => readText(channel)).toEqual(['One two ']);
  turn.say('three');
  turn.finish();
  await expect.poll(() => readText(channel)).toEqual(['One two three']);
  const [post] = slack.posts.filter((one) => one.channel === channel);
  // The last change may only remove the button.
  const versions = [...new Set(post?.versions)];
  expect(versions).toEqual(['_Thinking…_', 'One ', 'One two ', 'One two three']);
});

it('POST /slack/events continues a session in its thread, and creates another elsewhere', async () => {
  const first = await ask({ text: 'first' }, 'answer to first');
  const { channel, ts } = first.payload.event;
  const second = await ask({ channel, thread_ts: ts, text: 'second' });
  const contents = second.turn.body.messages.map(({ content }: { content: string }) => content);
  expect(contents).toEqual(expect.arrayContaining(['first', 'answer to first', 'second']));
  const elsewhere = await ask({ channel, text: 'elsewhere' });
  expect(JSON.stringify(elsewhere.turn.body.messages)).not.toContain('answer to first');
});

it('POST /slack/events creates a session for each user, also in one thread', async () => {
  const first = await ask({ user: 'U1', text: 'my secret' });
  const { channel, ts } = first.payload.event;
  const other = await ask({ user: 'U2', channel, thread_ts: ts, text: 'what did they say?' });
  expect(JSON.stringify(other.turn.body.messages)).not.toContain('my secret');
});

it('POST /slack/events keeps one session for direct messages of a user', async () => {
  const first = await ask({ ...direct, channel: 'D1', text: 'first' }, 'answer to first');
  expect(slack.posts.at(-1)).toMatchObject({ channel: 'D1', thread: undefined });
  const second = await ask({ ...direct, channel: 'D1', text: 'second' });
  expect(JSON.stringify(second.turn.body.messages)).toContain('answer to first');
  expect(first.payload.event.ts).not.toBe(second.payload.event.ts);
});

it('POST /slack/events answers a message once, even if it is delivered several times', async () => {
  const { payload, channel } = await ask({ ...direct, channel: 'D2' });
  const retry = { 'x-slack-retry-num': '1', 'x-slack-retry-reason': 'http_timeout' };
  const again = await Promise.all([
    deliver(host, payload, { headers: retry }),
    deliver(host, payload, { timestamp: Math.floor(Date.now() / 1000) - 60 }),
    deliver(host, { ...payload, event_id: 'EvOther' }),
    deliver(host, {
      ...payload,
      event_id: 'EvMention',
      event: { ...payload.event, type: 'app_mention' },
    }),
  ]);
  expect(again.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  await ask({ ...direct, channel: 'D2', text: 'next' }, 'next answer');
  expect(readText(channel)).toEqual(['Hi there', 'next answer']);
});

it('POST /slack/events ignores bots and messages without a mention', async () => {
  const unheard = [
    { user: 'UBOT' },
    { bot_id: 'B1' },
    { ...direct, subtype: 'message_changed' },
    { type: 'message', channel_type: 'channel' },
    { type: 'reaction_added' },
  ];
  for (const event of unheard)
    expect(await deliver(host, slackEvent({ ...event, text: 'unheard' }))).toMatchObject({
      status: 200,
    });
  const { turn } = await ask({ text: 'received' });
  expect(JSON.stringify(turn.body.messages)).not.toContain('unheard');
});

it('POST /slack/events splits an answer that is too long for one message', async () => {
  const payload = slackEvent();
  const { channel } = payload.event;
  await deliver(host, payload);
  const turn = await model.next();
  const lines = Array.from({ length: 300 }, (_, i) => `line ${i} ${'x'.repeat(30)}`);
  turn.say(lines.join('\n'));
  turn.finish();
  await expect.poll(() => readText(channel).join('\n')).toBe(lines.join('\n'));
  expect(readText(channel).length).toBeGreaterThan(2);
});

it('POST /slack/events aborts the turn on request', async () => {
  const payload = slackEvent();
  const { channel, ts } = payload.event;
  await deliver(host, payload);
  const turn = await model.next();
  turn.say('A long story');
  await expect.poll(() => readText(channel)).toEqual(['A long story']);
  await deliver(host, slackEvent({ channel, thread_ts: ts, text: '<@UBOT> stop' }));
  await expect.poll(() => readText(channel)).toEqual(['A long story\n\n_Stopped._']);
});

it('POST /slack/events retries when Slack fails temporarily', async () => {
  slack.failing.calls = 2;
  await ask({});
  slack.failing.status = 429;
  slack.failing.calls = 1;
  await ask({});
});

it('POST /slack/events sets client and user of the turn', async () => {
  await ask({ user: 'U7' });
  expect(turns.at(-1)).toEqual({ client: 'slack', did: 'did:slack:T1:U7' });
});

describe('deliveries that are not signed by Slack', () => {
  const now = () => Math.floor(Date.now() / 1000);

  it('are rejected, a thousand of them, and start no turn', async () => {
    const before = slack.posts.length;
    const forgeries = [
      { secret: 'guessed' },
      { headers: { 'x-slack-signature': 'v0=00' } },
      { headers: { 'x-slack-signature': '' } },
      { timestamp: now() - 400 },
      { timestamp: now() + 400 },
      { headers: { 'x-slack-request-timestamp': String(now() - 1) } },
      { headers: { 'content-type': 'text/plain' } },
    ];
    for (let batch = 0; batch < 20; batch++) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          deliver(host, slackEvent({ text: 'forged' }), forgeries[i % forgeries.length]),
        ),
      );
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
    }
    const { turn } = await ask({ text: 'genuine' });
    expect(JSON.stringify(turn.body.messages)).not.toContain('forged');
    expect(slack.posts.length).toBe(before + 1);
  });

  it('get no answer to the URL verification', async () => {
    const payload = { type: 'url_verification', challenge: 'abc' };
    const { status, body } = await deliver(host, payload, { secret: 'guessed' });
    expect([status, JSON.stringify(body)]).toEqual([401, expect.not.stringContaining('abc')]);
  });
});
