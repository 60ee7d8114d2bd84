import { type Chat, createSigner, type OracleClient, openChat } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { useControlledHost } from '../../host/test/support/controlled-host.js';
import { createTestClient } from './support/client.js';
import { type Network, startNetwork } from './support/network.js';

const server = useControlledHost();
const signer = createSigner(generateSigner());
let network: Network;
let client: OracleClient;
beforeAll(async () => {
  network = await startNetwork(server.host.url);
  client = createTestClient(network, { signer });
});
afterAll(() => {
  client.close();
  network.close();
});
const chats: Chat[] = [];
afterEach(() => {
  network.restore();
  for (const chat of chats.splice(0)) chat.close();
});

function open(sessionId: string, of = client): Chat {
  const chat = openChat(of, sessionId);
  chats.push(chat);
  return chat;
}

async function begin() {
  const { sessionId } = await client.sessions.create();
  const chat = open(sessionId);
  await expect.poll(() => chat.getState().status).toBe('ready');
  return { sessionId, chat };
}

/** A client of an oracle that refuses messages while `isOn`. */
function createRefusedClient(refusal: { readonly isOn: boolean }): OracleClient {
  const fetch: typeof globalThis.fetch = async (url, init) => {
    if (!refusal.isOn || init?.method !== 'POST') return globalThis.fetch(url, init);
    return Response.json({ code: 'insufficient_credit', message: 'No credit' }, { status: 402 });
  };
  return createTestClient(network, { signer, fetch });
}

/** The messages in short form. */
const shown = (chat: Chat) =>
  chat.getState().messages.map(({ type, content, status }) => `${type} ${status}: ${content}`);
const pollShown = (chat: Chat) => expect.poll(() => shown(chat));
const pollStatus = (chat: Chat) => expect.poll(() => chat.getState().status);

describe('openChat', () => {
  it('keeps the error of a command when the turn that ran meanwhile ends', async () => {
    const { chat } = await begin();
    const sent = chat.send('hello');
    const call = await server.model.next();
    await chat.show('unknown');
    expect(chat.getState().error).toMatchObject({ status: 404 });
    call.answer('hi');
    await sent;
    expect(chat.getState().error).toMatchObject({ status: 404 });
  });

  it('shows a question and its answer, with the same ids before and after they are stored', async () => {
    const { sessionId, chat } = await begin();
    const sent = chat.send('hello');
    expect(shown(chat)).toEqual(['human sending: hello']);
    expect(chat.getState().status).toBe('sending');
    const [question] = chat.getState().messages;
    const turn = await server.model.next();
    turn.think('well');
    turn.say('hi ');
    await pollShown(chat).toEqual(['human stored: hello', 'ai running: hi ']);
    expect(chat.getState().status).toBe('running');
    const answer = chat.getState().messages[1];
    turn.say('there');
    turn.finish();
    await sent;
    expect(shown(chat)).toEqual(['human stored: hello', 'ai stored: hi there']);
    expect(chat.getState()).toMatchObject({ status: 'ready', waiting: 0, hasOlder: false });
    expect(chat.getState().messages[1]?.reasoning).toBe('well');
    const ids = chat.getState().messages.map(({ id }) => id);
    expect(ids).toEqual([question?.id, answer?.id]);
    const again = open(sessionId);
    await pollShown(again).toEqual(shown(chat));
  });

  it('keeps the objects of unchanged messages', async () => {
    const { chat } = await begin();
    const first = chat.send('one');
    (await server.model.next()).finish();
    await first;
    const before = chat.getState();
    await chat.refresh();
    expect(chat.getState().messages).toBe(before.messages);
    const second = chat.send('two');
    expect(chat.getState().messages.slice(0, 2)).toEqual(before.messages);
    expect(chat.getState().messages[0]).toBe(before.messages[0]);
    (await server.model.next()).finish();
    await second;
  });

  it('shows the same messages after their live turns are dropped', async () => {
    const { chat } = await begin();
    const answer = async (question: string) => {
      const sent = chat.send(question);
      const turn = await server.model.next();
      turn.think(`about ${question}`);
      turn.call({ name: 'recall', input: { query: question } });
      (await server.model.next()).finish();
      await sent;
    };
    await answer('first');
    const before = chat.getState().messages;
    for (let n = 0; n < 7; n++) await answer(`question ${n}`);
    await chat.refresh();
    expect(chat.getState().messages).toHaveLength(16);
    for (const [i, message] of before.entries()) expect(chat.getState().messages[i]).toBe(message);
  });

  it('shows queued messages', async () => {
    const { chat } = await begin();
    const first = chat.send('first');
    const turn = await server.model.next();
    await pollShown(chat).toEqual(['human stored: first', 'ai running: ']);
    const second = chat.send('second');
    await pollShown(chat).toEqual(['human stored: first', 'ai running: ', 'human waiting: second']);
    expect(chat.getState().waiting).toBe(1);
    turn.say('1');
    turn.finish();
    const next = await server.model.next();
    next.say('2');
    next.finish();
    await Promise.all([first, second]);
    expect(shown(chat)).toEqual([
      'human stored: first',
      'ai stored: 1',
      'human stored: second',
      'ai stored: 2',
    ]);
  });

  it('follows a turn that is already running from its beginning', async () => {
    const { sessionId, chat } = await begin();
    const sent = chat.send('go');
    const turn = await server.model.next();
    turn.say('half ');
    await pollShown(chat).toEqual(['human stored: go', 'ai running: half ']);
    const reloaded = open(sessionId, createTestClient(network, { signer }));
    await pollShown(reloaded).toEqual(['human stored: go', 'ai running: half ']);
    turn.say('whole');
    turn.finish();
    await sent;
    await pollShown(reloaded).toEqual(['human stored: go', 'ai stored: half whole']);
  });

  it('follows a turn that another page starts', async () => {
    const { sessionId, chat } = await begin();
    const other = open(sessionId, createTestClient(network, { signer }));
    await expect.poll(() => other.getState().connection).toBe('connected');
    await pollStatus(other).toBe('ready');
    const sent = chat.send('go');
    const turn = await server.model.next();
    turn.say('both');
    await pollShown(other).toEqual(['human stored: go', 'ai running: both']);
    turn.finish();
    await sent;
    await pollShown(other).toEqual(['human stored: go', 'ai stored: both']);
  });

  it('loadOlder loads one page of older messages', async () => {
    const { sessionId } = await client.sessions.create();
    for (let n = 1; n <= 22; n++) {
      const sent = client.messages.send(sessionId, `question ${n}`);
      (await server.model.next()).finish();
      await sent;
    }
    const chat = open(sessionId);
    await pollStatus(chat).toBe('ready');
    expect(chat.getState()).toMatchObject({ hasOlder: true });
    expect(chat.getState().messages[0]?.content).toBe('question 3');
    await chat.loadOlder();
    expect(chat.getState()).toMatchObject({ hasOlder: false });
    expect(chat.getState().messages[0]?.content).toBe('question 1');
    expect(chat.getState().messages).toHaveLength(44);
    const before = chat.getState().messages;
    await chat.refresh();
    expect(chat.getState().messages).toBe(before);
  });

  it('reconnects after the connection is lost', async () => {
    const { chat } = await begin();
    const sent = chat.send('go');
    const turn = await server.model.next();
    turn.say('one ');
    await pollShown(chat).toEqual(['human stored: go', 'ai running: one ']);
    network.goDown();
    await pollStatus(chat).toBe('rejoining');
    turn.say('two');
    turn.finish();
    network.restore();
    await sent;
    expect(shown(chat)).toEqual(['human stored: go', 'ai stored: one two']);
  });

  it('abort leaves an incomplete answer', async () => {
    const { sessionId, chat } = await begin();
    const sent = chat.send('go');
    const turn = await server.model.next();
    turn.say('half');
    await pollShown(chat).toEqual(['human stored: go', 'ai running: half']);
    expect(await chat.abort()).toBe(true);
    await sent;
    expect(shown(chat)).toEqual(['human stored: go', 'ai incomplete: half']);
    await pollShown(open(sessionId)).toEqual(shown(chat));
  });

  it('send shows a failed message with its error, which the next send clears', async () => {
    const { chat } = await begin();
    network.goDown();
    await chat.refresh();
    expect(chat.getState().error).toMatchObject({ code: 'network_error' });
    await chat.send('into the void');
    expect(shown(chat)).toEqual(['human failed: into the void']);
    expect(chat.getState().error).toMatchObject({ code: 'network_error' });
    network.restore();
    const sent = chat.send('again');
    expect(chat.getState().error).toBeUndefined();
    (await server.model.next()).finish();
    await sent;
    expect(chat.getState().error).toBeUndefined();
    expect(shown(chat).slice(0, 2)).toEqual(['human failed: into the void', 'human stored: again']);
  });

  it('shows tool calls, live and from the history', async () => {
    const { sessionId, chat } = await begin();
    const sent = chat.send('go');
    (await server.model.next()).call({ name: 'recall', input: { query: 'soil' } });
    const turn = await server.model.next();
    turn.finish();
    await sent;
    const calls = chat.getState().messages[1]?.calls;
    expect(calls).toMatchObject([{ kind: 'tool', name: 'recall', status: 'done' }]);
    const again = open(sessionId);
    await expect.poll(() => again.getState().messages[1]?.calls).toEqual(calls);
  });

  it('has the status failed for an unknown session', async () => {
    const chat = open('nowhere');
    await pollStatus(chat).toBe('failed');
    expect(chat.getState().error).toMatchObject({ code: 'session_not_found' });
  });
});

describe('paths of a chat', () => {
  const say = async (sent: Promise<void>, answer: string) => {
    (await server.model.next()).answer(answer);
    await sent;
  };

  it('openChat edits, regenerates, shows siblings and withdraws', async () => {
    const { chat } = await begin();
    await say(chat.send('one'), 'first');
    const [question] = chat.getState().messages;
    await say(chat.edit(question?.messageId ?? '', 'uno'), 'primero');
    await pollShown(chat).toEqual(['human stored: uno', 'ai stored: primero']);
    const answer = chat.getState().messages.at(-1);
    await say(chat.regenerate(answer?.messageId ?? ''), 'segundo');
    await pollShown(chat).toEqual(['human stored: uno', 'ai stored: segundo']);
    expect(chat.getState().messages.at(-1)?.siblings).toHaveLength(2);
    await chat.show(chat.getState().messages[0]?.siblings?.[0] ?? '');
    expect(shown(chat)).toEqual(['human stored: one', 'ai stored: first']);
    const running = chat.send('two');
    const turn = await server.model.next();
    const waiting = chat.send({ message: 'three', requestId: 'waiting' });
    await pollShown(chat).toContain('human waiting: three');
    network.goDown();
    await pollStatus(chat).toBe('rejoining');
    expect(await chat.withdraw('waiting')).toBe(false);
    expect(await chat.abort()).toBe(false);
    expect(chat.getState().error).toMatchObject({ code: 'network_error' });
    network.restore();
    await pollStatus(chat).toBe('running');
    expect(await chat.withdraw('waiting')).toBe(true);
    expect(chat.getState().error).toBeUndefined();
    await waiting;
    turn.answer('second');
    await running;
    await pollShown(chat).toEqual([
      'human stored: one',
      'ai stored: first',
      'human stored: two',
      'ai stored: second',
    ]);
  });

  it('openChat shows one path in every client after two of them have edited a message at once', async () => {
    const { sessionId, chat } = await begin();
    await say(chat.send('one'), 'first');
    const other = open(sessionId, createTestClient(network, { signer }));
    await pollShown(other).toEqual(['human stored: one', 'ai stored: first']);
    const { messageId = '' } = other.getState().messages[0] ?? {};
    const edits = [chat.edit(messageId, 'uno')];
    const turn = await server.model.next();
    edits.push(other.edit(messageId, 'eins'));
    await expect.poll(() => shown(other).join()).toMatch(/(waiting|stored): eins/);
    turn.answer('primero');
    (await server.model.next()).answer('erste');
    await Promise.all(edits);
    for (const each of [chat, other])
      await pollShown(each).toEqual(['human stored: eins', 'ai stored: erste']);
  });

  it('openChat shows an answer that is being written only on its path', async () => {
    const { sessionId, chat } = await begin();
    await say(chat.send('one'), 'first');
    const other = open(sessionId, createTestClient(network, { signer }));
    await pollShown(other).toEqual(['human stored: one', 'ai stored: first']);
    const edit = chat.edit(chat.getState().messages[0]?.messageId ?? '', 'uno');
    const turn = await server.model.next();
    turn.say('pri');
    for (const each of [chat, other])
      await pollShown(each).toEqual(['human stored: uno', 'ai running: pri']);
    const [before = '', edited = ''] = other.getState().messages[0]?.siblings ?? [];
    await other.show(before);
    const late = open(sessionId, createTestClient(network, { signer }));
    for (const each of [chat, other, late]) {
      await pollShown(each).toEqual(['human stored: one', 'ai stored: first']);
      await pollStatus(each).toBe('running');
    }
    turn.say('me');
    await other.show(edited);
    for (const each of [chat, other, late])
      await pollShown(each).toEqual(['human stored: uno', 'ai running: prime']);
    await other.show(before);
    turn.finish();
    await edit;
    for (const each of [chat, other, late]) {
      await pollStatus(each).toBe('ready');
      expect(shown(each)).toEqual(['human stored: one', 'ai stored: first']);
    }
  });

  it.each(['an edit', 'another answer'])(
    'openChat shows the answer that is being written until it ends, while %s waits for it',
    async (kind) => {
      const { sessionId, chat } = await begin();
      await say(chat.send('one'), 'first');
      const other = open(sessionId, createTestClient(network, { signer }));
      await pollShown(other).toEqual(['human stored: one', 'ai stored: first']);
      const [question, answer] = other.getState().messages;
      const sent = chat.send('two');
      const turn = await server.model.next();
      turn.say('sec');
      const isEdit = kind === 'an edit';
      const path = ['human stored: one', 'ai stored: first', 'human stored: two'];
      for (const each of [chat, other]) await pollShown(each).toEqual([...path, 'ai running: sec']);
      const later = isEdit
        ? other.edit(question?.messageId ?? '', 'uno')
        : other.regenerate(answer?.messageId ?? '');
      await expect.poll(() => other.getState().waiting).toBe(1);
      turn.say('ond');
      const waiting = isEdit ? ['human waiting: uno'] : [];
      await pollShown(other).toEqual([...path, 'ai running: second', ...waiting]);
      await pollShown(chat).toEqual([...path, 'ai running: second']);
      turn.finish();
      await sent;
      (await server.model.next()).answer('primero');
      await later;
      const asked = isEdit ? 'uno' : 'one';
      for (const each of [chat, other])
        await pollShown(each).toEqual([`human stored: ${asked}`, 'ai stored: primero']);
    },
  );

  it('openChat shows an answer that is written again below its question, while a message waits for it', async () => {
    const { sessionId, chat } = await begin();
    await say(chat.send('one'), 'first');
    const other = open(sessionId, createTestClient(network, { signer }));
    const again = chat.regenerate(chat.getState().messages[1]?.messageId ?? '');
    const turn = await server.model.next();
    turn.say('ag');
    await pollShown(other).toEqual(['human stored: one', 'ai running: ag']);
    const sent = other.send('two');
    await pollShown(other).toContain('human waiting: two');
    const late = open(sessionId, createTestClient(network, { signer }));
    await chat.refresh();
    const path = (status: string) => [
      'human stored: one',
      'ai running: ag',
      `human ${status}: two`,
    ];
    await pollShown(other).toEqual(path('waiting'));
    for (const each of [chat, late]) await pollShown(each).toEqual(path('stored'));
    turn.answer('ain');
    await again;
    await say(sent, 'second');
    const end = ['human stored: one', 'ai stored: again', 'human stored: two', 'ai stored: second'];
    for (const each of [chat, other, late]) await pollShown(each).toEqual(end);
  });

  it('openChat does not show an answer below the edit that waits for it', async () => {
    const { sessionId, chat } = await begin();
    await say(chat.send('one'), 'first');
    const sent = chat.send('two');
    const turn = await server.model.next();
    turn.say('sec');
    const edit = chat.edit(chat.getState().messages[0]?.messageId ?? '', 'uno');
    const readLast = async () => (await client.messages.list(sessionId)).at(-1)?.content;
    await expect.poll(readLast).toBe('uno');
    const late = open(sessionId, createTestClient(network, { signer }));
    await pollStatus(late).toBe('running');
    turn.say('ond');
    await expect.poll(() => shown(chat).join()).toContain('second');
    expect(shown(late)).toEqual(['human stored: uno']);
    turn.finish();
    await sent;
    await say(edit, 'primero');
    for (const each of [chat, late])
      await pollShown(each).toEqual(['human stored: uno', 'ai stored: primero']);
  });

  it('openChat shows the answer of another client before the message that waits for it', async () => {
    const { sessionId, chat } = await begin();
    const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
    let isSlow = false;
    const fetch: typeof globalThis.fetch = async (url, init) => {
      if (isSlow && init?.method !== 'POST') await heard;
      return globalThis.fetch(url, init);
    };
    const other = open(sessionId, createTestClient(network, { signer, fetch }));
    await pollStatus(other).toBe('ready');
    isSlow = true;
    const sent = chat.send('one');
    const turn = await server.model.next();
    turn.say('fir');
    const sentLater = other.send('two');
    await pollShown(other).toContain('human stored: two');
    hear();
    await pollShown(other).toEqual(['human stored: one', 'ai running: fir', 'human waiting: two']);
    turn.finish();
    await Promise.all([sent, say(sentLater, 'second')]);
  });

  it('openChat shows the conversation again if regenerate or an edit is refused or offline', async () => {
    const refusal = { isOn: false };
    const { sessionId } = await client.sessions.create();
    const chat = open(sessionId, createRefusedClient(refusal));
    await say(chat.send('one'), 'first');
    await say(chat.send('two'), 'second');
    const whole = shown(chat);
    const answerId = chat.getState().messages[1]?.messageId ?? '';
    const check = async (error: object) => {
      await chat.regenerate(answerId);
      expect(shown(chat)).toEqual(whole);
      expect(chat.getState()).toMatchObject({ status: 'ready', error });
      const edit = { message: 'uno', parentId: null, requestId: crypto.randomUUID() };
      await chat.send(edit);
      // As a page does that sends it again.
      await chat.send(edit);
      expect(shown(chat)).toContain('human failed: uno');
      chat.discard(edit.requestId);
      await pollShown(chat).toEqual(whole);
    };
    refusal.isOn = true;
    await check({ code: 'insufficient_credit', status: 402 });
    refusal.isOn = false;
    network.goDown();
    await check({ code: 'network_error' });
  });

  it('openChat shows why a turn failed, also after a reload', async () => {
    const { sessionId, chat } = await begin();
    const sent = chat.send('hello');
    const turn = await server.model.next();
    turn.say('partial');
    turn.fail({ message: 'no', type: 'invalid_request_error', code: 'invalid' });
    await sent;
    const reloaded = open(sessionId);
    await expect.poll(() => reloaded.getState().messages.at(-1)?.status).toBe('failed');
    expect(reloaded.getState().messages.at(-1)?.error?.error).toBeTruthy();
  });

  it('sessions.changes and search report what other clients do', async () => {
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { change } of client.sessions.changes({ signal: stop.signal }))
        seen.push(change);
    })();
    await expect.poll(() => seen).toEqual(['reload']);
    const { sessionId } = await client.sessions.create({ title: 'Numbats' });
    await expect.poll(() => seen).toContain('created');
    await expect
      .poll(async () => (await client.search('numbats')).results)
      .toMatchObject([{ sessionId, title: 'Numbats' }]);
    stop.abort();
    await watching;
  });
});
