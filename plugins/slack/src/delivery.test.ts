import { describe, expect, it } from 'vitest';
import {
  type EventCallback,
  parseMessage,
  plainText,
  RequestSignature,
  readDelivery,
} from './delivery.js';

describe('RequestSignature: signatures', () => {
  const now = 1_700_000_000_000;
  const signature = new RequestSignature('8f742231b10e8888abcd99yyyzzz85a5', () => now);
  const timestamp = String(now / 1000);
  const body = Buffer.from('{"type":"event_callback"}');
  const signed = { signature: signature.sign(timestamp, body), timestamp, body };

  it('are made as Slack makes them', () => {
    // The example of Slack's own documentation.
    const form =
      'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c';
    expect(signature.sign('1531420618', Buffer.from(form))).toBe(
      'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503',
    );
  });

  it('let in what Slack sent', () => {
    expect(() => signature.assert(signed)).not.toThrow();
  });

  it.each([
    { ...signed, signature: undefined },
    { ...signed, signature: '' },
    { ...signed, signature: signed.signature.replace(/.$/, 'x') },
    { ...signed, signature: signed.signature.slice(0, -1) },
    { ...signed, signature: signed.signature.toUpperCase() },
    { ...signed, body: Buffer.from('{"type": "event_callback"}') },
    { ...signed, timestamp: undefined },
    { ...signed, timestamp: String(now / 1000 + 1) },
    { ...signed, signature: signature.sign('soon', body), timestamp: 'soon' },
    { ...signed, signature: signature.sign('', body), timestamp: '' },
  ])('refuse %o', (request) => {
    expect(() => signature.assert(request)).toThrow(/not signed by Slack/);
  });

  it.each([-301, 301])('refuse what is %i s off', (seconds) => {
    const stamp = String(now / 1000 + seconds);
    const request = { signature: signature.sign(stamp, body), timestamp: stamp, body };
    expect(() => signature.assert(request)).toThrow(/too old/);
  });
});

describe('readDelivery: deliveries', () => {
  const read = (payload: unknown) => readDelivery(Buffer.from(JSON.stringify(payload)));

  it('readDelivery distinguishes challenges, events and others', () => {
    expect(read({ type: 'url_verification', challenge: 'c', token: 't' })).toEqual({
      kind: 'challenge',
      challenge: 'c',
    });
    expect(read(buildCallback({}))).toMatchObject({ kind: 'event' });
    expect(read({ type: 'app_rate_limited' })).toEqual({ kind: 'other' });
  });

  it('that are rubbish are refused', () => {
    expect(() => readDelivery(Buffer.from('{'))).toThrow(/JSON/);
    expect(() => read([])).toThrow(/type/);
    expect(() => read(null)).toThrow(/type/);
  });
});

describe('parseMessage: messages', () => {
  it('are mentions, answered in their thread', () => {
    expect(parseMessage(buildCallback({ text: '<@UBOT> hello <@UBOT>' }))).toEqual({
      eventId: 'Ev1',
      team: 'T1',
      user: 'U1',
      channel: 'C1',
      ts: '1.2',
      thread: '1.2',
      text: 'hello',
    });
    expect(parseMessage(buildCallback({ thread_ts: '0.9' }))).toMatchObject({ thread: '0.9' });
  });

  it('are direct messages, answered beside them unless they are in a thread', () => {
    const direct = { type: 'message', channel_type: 'im' };
    expect(parseMessage(buildCallback(direct))).not.toHaveProperty('thread');
    expect(parseMessage(buildCallback({ ...direct, thread_ts: '0.9' }))).toMatchObject({
      thread: '0.9',
    });
  });

  it.each([
    { user: 'UBOT' },
    { user: undefined },
    { bot_id: 'B1' },
    { subtype: 'bot_message' },
    { subtype: 'message_changed' },
    { subtype: 'message_deleted' },
    { type: 'message', channel_type: 'channel' },
    { type: 'reaction_added' },
    { text: '<@UBOT>' },
    { channel: undefined },
  ])('are nothing else: %o', (event) => {
    expect(parseMessage(buildCallback(event))).toBeUndefined();
  });
});

it.each([
  ['a &lt;b&gt; &amp;amp; c', 'a <b> &amp; c'],
  ['see <https://a.b/c|a.b/c> or <https://a.b>', 'see a.b/c (https://a.b/c) or https://a.b'],
  ['<mailto:a@b.c|a@b.c>', 'a@b.c'],
  ['in <#C1|general> ask <@U2> or <@U3|ann>', 'in #general ask @U2 or @ann'],
  ['<!here> <!subteam^S1|@team>', '@here @team'],
  ['<@UBOT>  hi', 'hi'],
])('plainText reads %j as %j', (text, plain) => {
  expect(plainText(text, 'UBOT')).toBe(plain);
});

function buildCallback(event: object): EventCallback {
  return {
    type: 'event_callback',
    event_id: 'Ev1',
    team_id: 'T1',
    authorizations: [{ user_id: 'UBOT', is_bot: true }],
    event: { type: 'app_mention', user: 'U1', channel: 'C1', ts: '1.2', text: 'hello', ...event },
  };
}
