import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { definePlugin, defineTool } from '@sibyl/plugin-kit';
import { buildDecisionClaims } from '@sibyl/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import {
  createSchedule,
  readRuns,
  readSchedule,
} from '../../../packages/host/test/support/schedules.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, type TestHomeserver, withOracle } from './support/homeserver.js';
import { ALICE, ORACLE, Room } from './support/rooms.js';

let home: TestHomeserver;
let model: ControlledModel;
let host: TestHost;
const turns: { client: string; did: string }[] = [];

const witness = definePlugin({
  name: 'witness',
  version: '1.0.0',
  manifest: { title: 'Witness', summary: 'Sees turns.', whenToUse: [], category: 'test' },
  getTools: () => [
    defineTool({
      name: 'ask_color',
      description: 'Asks for a color.',
      inputSchema: z.object({}),
      visibility: 'always',
      run: (_, { interrupt }) =>
        interrupt({
          kind: 'input_required',
          data: { question: 'Which color?' },
          schema: z.enum(['red', 'green']),
        }),
    }),
    defineTool({
      name: 'pay',
      description: 'Pays.',
      inputSchema: z.object({}),
      visibility: 'always',
      needsApproval: true,
      run: () => ({ paid: true }),
    }),
  ],
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
  home = await startHomeserver();
  model = await startControlledModel();
  const env = { ...model.env, ...withOracle(home), MATRIX_CHAT: 'true' };
  host = await startHost({
    env: { ...env, PUBLIC_URL: 'https://oracle.example' },
    plugins: [witness],
  });
});
afterAll(async () => {
  await host?.close();
  model?.close();
  await home?.close();
});
beforeEach(() => {
  model.discard();
  turns.splice(0);
});

/** A room that the oracle has joined. */
async function openRoom(members?: readonly string[]): Promise<Room> {
  const room = new Room(home, members);
  await expect.poll(() => room.hasOracle).toBe(true);
  return room;
}

/** Lets the model answer the next message. */
async function answer(room: Room, text = 'Hi there') {
  const before = room.answers.length;
  const turn = await model.next();
  turn.answer(text);
  await expect.poll(() => room.answers.length).toBeGreaterThan(before);
  return turn;
}

const said = (turn: { body: { messages: unknown } }) => JSON.stringify(turn.body.messages);

describe('MATRIX_CHAT', () => {
  it('answers a message in a thread, which is a session, with formatted text', async () => {
    const room = await openRoom();
    const root = room.say('What is **this**?');
    await answer(room, '**Bold** <script>alert(1)</script>');
    expect(room.answers).toMatchObject([
      {
        content: {
          msgtype: 'm.notice',
          body: '**Bold** <script>alert(1)</script>',
          formatted_body: '<p><strong>Bold</strong> &lt;script&gt;alert(1)&lt;/script&gt;</p>',
          'm.mentions': {},
          'm.relates_to': { rel_type: 'm.thread', event_id: root },
        },
      },
    ]);
    room.say('And now?', { thread: root });
    expect(said(await answer(room, 'Later'))).toContain('What is **this**?');
    room.say('Something else');
    expect(said(await answer(room))).not.toContain('What is **this**?');
    expect(turns.at(-1)).toEqual({ client: 'matrix', did: 'did:matrix:alice:test' });
    expect(home.requests.some(({ line }) => line.includes('/typing/'))).toBe(true);
  });

  it('creates a session for each user, also in one thread', async () => {
    const room = await openRoom([ALICE, '@bob:test']);
    const root = room.say(`${ORACLE}: my secret`);
    await answer(room);
    room.say(`${ORACLE} what did they say?`, { sender: '@bob:test', thread: root });
    expect(said(await answer(room))).not.toContain('my secret');
    expect(turns.at(-1)?.did).toBe('did:matrix:bob:test');
  });

  it('ignores history, own messages, notices, edits, strangers and, among several people, those who do not mention it', async () => {
    const room = new Room(home, [ALICE, '@bob:test']);
    room.say(`${ORACLE} said before it joined`);
    await expect.poll(() => room.hasOracle).toBe(true);
    room.say('without a mention');
    room.say(`${ORACLE} a bot`, { msgtype: 'm.notice' });
    room.say(`* ${ORACLE} edited`, { 'm.relates_to': { rel_type: 'm.replace', event_id: '$1' } });
    room.say(`${ORACLE} of another server`, { sender: '@eve:elsewhere' });
    room.send('m.room.message', { body: 3 });
    room.say('hello', { 'm.mentions': { user_ids: [ORACLE] } });
    expect((await answer(room)).body.messages.at(-1)).toMatchObject({ content: 'hello' });
    expect(model.arrived).toBe(0);
    expect(room.texts).toEqual(['Hi there']);
  });

  it('continues a thread among several people without another mention', async () => {
    const room = await openRoom([ALICE, '@bob:test']);
    const root = room.say(`${ORACLE}: begin`);
    await answer(room);
    room.say('between us', { sender: '@bob:test', thread: root });
    room.say('continue', { thread: root });
    expect(said(await answer(room))).not.toContain('between us');
  });

  it('rejects invitations of accounts that may not talk to it', async () => {
    const room = new Room(home, ['@eve:elsewhere']);
    const left = `/rooms/${encodeURIComponent(room.id)}/leave`;
    await expect.poll(() => home.requests.some(({ line }) => line.includes(left))).toBe(true);
    expect(room.hasOracle).toBe(false);
  });

  it('says once that a room is encrypted', async () => {
    const room = await openRoom();
    room.send('m.room.encrypted', { algorithm: 'm.megolm.v1.aes-sha2', ciphertext: '…' });
    await expect.poll(() => room.texts.join()).toMatch(/encrypted, so I cannot read/);
    room.send('m.room.encrypted', { algorithm: 'm.megolm.v1.aes-sha2', ciphertext: '…' });
    room.say('in plain text');
    await answer(room);
    expect(room.texts).toHaveLength(2);
  });

  it('splits long answers, and sends each part once although the homeserver limits messages', async () => {
    const room = await openRoom();
    room.say('Explain everything');
    home.behavior.retryAfterMs = 200;
    home.behavior.limitedSends = 3;
    const turn = await model.next();
    const lines = Array.from({ length: 1500 }, (_, i) => `line ${i} ${'ü'.repeat(20)}`);
    turn.answer(lines.join('\n'));
    await expect.poll(() => room.texts.join('\n')).toBe(lines.join('\n'));
    expect(room.texts.length).toBeGreaterThan(2);
    for (const { content } of room.answers)
      expect(Buffer.byteLength(JSON.stringify(content))).toBeLessThan(60_000);
  });

  it('reads what was said during a gap of the stream', async () => {
    const room = await openRoom();
    home.behavior.timelineLength = 1;
    onTestFinished(() => {
      home.behavior.timelineLength = 50;
    });
    const asked = ['first', 'second', 'third'];
    for (const text of asked) room.say(text);
    const seen: string[] = [];
    for (const _ of asked) seen.push((await answer(room)).body.messages.at(-1).content);
    expect(seen.sort()).toEqual(asked.toSorted());
    expect(home.requests.some(({ line }) => /\/messages\?/.test(line))).toBe(true);
  });

  it('stops an answer that the user no longer wants, and one whose question is deleted', async () => {
    const room = await openRoom();
    const root = room.say('A long story, please');
    const turn = await model.next();
    turn.say('Once upon a time');
    room.say('stop', { thread: root });
    await turn.left;
    await expect
      .poll(() => room.texts.toSorted())
      .toEqual(['Once upon a time\n\n_Stopped._', 'Stopped.']);
    const deleted = room.say('Forget this');
    const second = await model.next();
    room.send('m.room.redaction', { redacts: deleted });
    await second.left;
    room.say('still there?');
    await answer(room, 'Yes');
    expect(room.texts).toHaveLength(3);
  });

  it('answers a question although its event is deleted in another room', async () => {
    const room = await openRoom();
    const other = await openRoom();
    const asked = room.say('Are you there?');
    const turn = await model.next();
    other.send('m.room.redaction', { redacts: asked });
    other.say('Hello');
    const second = await model.next();
    second.answer('Hi');
    await expect.poll(() => other.texts).toEqual(['Hi']);
    turn.answer('Yes');
    await expect.poll(() => room.texts).toEqual(['Yes']);
  });

  it('asks the questions of tools, and continues with the reply in the thread', async () => {
    const room = await openRoom();
    const root = room.say('Paint it');
    (await model.next()).call({ name: 'ask_color', input: {} });
    await expect.poll(() => room.texts.at(-1)).toMatch(/Which color\?[\s\S]*red, green/);
    room.say('blue', { thread: root });
    await expect.poll(() => room.texts.length).toBe(2);
    expect(room.texts.at(-1)).toMatch(/^⚠️/);
    room.say('GREEN', { thread: root });
    const turn = await answer(room, 'It is green');
    expect(turn.results).toEqual(['"green"']);
    expect(room.texts.at(-1)).toBe('It is green');
  });

  it('gives an answer to a question once, although its host dies before it knows', async () => {
    const room = await openRoom();
    const root = room.say('Paint it twice');
    (await model.next()).call({ name: 'ask_color', input: {} });
    await expect.poll(() => room.texts.length).toBe(1);
    const reply = room.say('green', { thread: root });
    const second = await model.next();
    second.call({ name: 'ask_color', input: {} });
    await expect.poll(() => room.texts.length).toBe(2);
    const file = new DatabaseSync(join(host.dataDir, 'sibyl.db'));
    file.exec('pragma busy_timeout = 5000');
    const reset = "update matrix_inbox set state = 'waiting', lease_until = 0 where event_id = ?";
    const state = 'select state from matrix_inbox where event_id = ?';
    file.prepare(reset).run(reply);
    await expect.poll(() => file.prepare(state).get(reply)?.state).toBe('done');
    file.close();
    room.say('red', { thread: root });
    const turn = await answer(room, 'Painted');
    expect(turn.results).toEqual(['"red"']);
    expect(room.texts.at(-1)).toBe('Painted');
    expect(room.texts).toHaveLength(3);
  });

  it('lets a call that needs approval only be denied', async () => {
    const room = await openRoom();
    const root = room.say('Pay the bill');
    (await model.next()).call({ name: 'pay', input: {} });
    await expect.poll(() => room.texts.at(-1)).toContain('https://oracle.example');
    room.say('yes', { thread: root });
    await expect.poll(() => room.texts.length).toBe(2);
    expect(room.texts.at(-1)).toContain('signed with your key');
    room.say('deny: too expensive', { thread: root });
    const turn = await answer(room, 'I did not pay');
    expect(turn.results.join()).toContain('too expensive');
  });

  it('reads files of messages, and sends files', async () => {
    const room = await openRoom();
    home.media.set('notes', { bytes: Buffer.from('the answer is 42') });
    const info = { mimetype: 'text/plain', size: 16 };
    const root = room.say('notes.txt', { msgtype: 'm.file', url: 'mxc://test/notes', info });
    const turn = await model.next();
    expect(said(turn)).toContain('the answer is 42');
    turn.call({ name: 'send_file', input: { filename: 'a.csv', content: 'a,b' } });
    await answer(room, 'Sent');
    const [file] = room.answers;
    expect(file?.content).toMatchObject({
      msgtype: 'm.file',
      body: 'a.csv',
      'm.relates_to': { event_id: root },
    });
    const id = String(file?.content.url).split('/').at(-1) ?? '';
    expect(Buffer.from(home.media.get(id)?.bytes ?? []).toString()).toBe('a,b');
  });
});

describe('POST /matrix/links', () => {
  const toResource = (userId: string) =>
    `ixo:oracle:${host.did}:matrix/${encodeURIComponent(userId)}`;
  const delegate = (user: TestUser, userId: string) =>
    user.delegate({ capabilities: [{ can: 'oracle/run', with: toResource(userId) }] });
  const begin = (user: TestUser, userId: string, delegation = delegate(user, userId)) =>
    user.request('POST', '/matrix/links', { body: { userId, delegation } });

  it('links an account once both the key and the account have said so, until it is revoked', async () => {
    const userId = `@u${randomUUID()}:test`;
    const room = await openRoom([userId]);
    const user = new TestUser(host);
    const { status, body } = await begin(user, userId);
    expect(status).toBe(201);
    expect(body).toMatchObject({ userId, status: 'pending', oracleUserId: ORACLE });
    room.say('not yet', { sender: userId });
    await answer(room);
    expect(turns.at(-1)?.did).toBe(`did:matrix:${userId.slice(1)}`);
    room.say(body.code, { sender: userId });
    await expect.poll(() => room.texts.at(-1)).toContain(user.did);
    const root = room.say('who am I?', { sender: userId });
    await answer(room);
    expect(turns.at(-1)).toEqual({ client: 'matrix', did: user.did });
    const { links } = (await user.request('GET', '/matrix/links')).body;
    expect(links).toMatchObject([{ userId, status: 'linked' }]);
    const { sessions } = (await user.request('GET', '/sessions')).body;
    expect(sessions).toHaveLength(1);
    const { delegations } = (await user.request('GET', '/delegations')).body;
    await user.request('DELETE', `/delegations/${delegations[0].cid}`);
    room.say('and now?', { sender: userId, thread: root });
    await answer(room);
    expect(room.texts.at(-1)).toMatch(/no longer linked[\s\S]*Hi there/);
    expect(turns.at(-1)?.did).toBe(`did:matrix:${userId.slice(1)}`);
    expect((await user.request('GET', '/matrix/links')).body.links).toEqual([]);
  });

  it('shows in the room what follows a call that was approved elsewhere', async () => {
    const userId = `@u${randomUUID()}:test`;
    const room = await openRoom([userId]);
    const user = new TestUser(host);
    const { body } = await begin(user, userId);
    room.say(body.code, { sender: userId });
    await expect.poll(() => room.texts.at(-1)).toContain(user.did);
    const root = room.say('Pay the bill', { sender: userId });
    (await model.next()).call({ name: 'pay', input: {} });
    await expect.poll(() => room.texts.at(-1)).toContain('https://oracle.example');
    const [approval] = (await user.request('GET', '/approvals')).body.approvals;
    const { id, args: originalArgs } = approval;
    const nb = await buildDecisionClaims({ id, decision: 'approve', originalArgs });
    const capability = { can: 'oracle/approve', with: `ixo:oracle:${host.did}`, nb };
    const invocation = user.delegate({ capabilities: [capability], ttlSeconds: 300 });
    const decision = { decision: 'approve', invocation };
    const decided = await user.request('POST', `/approvals/${id}`, { body: decision });
    expect(decided.status).toBe(200);
    const turn = await answer(room, 'Paid');
    expect(turn.results.join()).toContain('"paid":true');
    expect(room.texts.at(-1)).toBe('_Approved._\n\nPaid');
    expect(room.answers.at(-1)?.content['m.relates_to']).toMatchObject({ event_id: root });
  });

  it('refuses the code from another account, a second time, and a delegation for another account', async () => {
    const [mine, other] = [`@u${randomUUID()}:test`, `@u${randomUUID()}:test`];
    const room = await openRoom([mine]);
    const elsewhere = await openRoom([other]);
    const user = new TestUser(host);
    const foreign = await begin(user, mine, delegate(user, other));
    expect(foreign.body).toMatchObject({ statusCode: 400, code: 'invalid_delegation' });
    const stolen = await begin(user, mine, delegate(new TestUser(host), mine));
    expect(stolen.body.code).toBe('foreign_delegation');
    expect((await begin(user, 'alice')).status).toBe(400);
    const { body } = await begin(user, mine);
    elsewhere.say(body.code, { sender: other });
    await expect.poll(() => elsewhere.texts.join()).toContain('not valid');
    room.say(body.code, { sender: mine });
    await expect.poll(() => room.texts.join()).toContain(user.did);
    room.say(body.code, { sender: mine });
    await expect.poll(() => room.texts.join()).toContain('not valid');
    room.say('unlink', { sender: mine });
    await expect.poll(() => room.texts.join()).toContain('no longer linked');
    const gone = await user.request('DELETE', `/matrix/links/${encodeURIComponent(mine)}`);
    expect(gone.body).toMatchObject({ statusCode: 404, code: 'link_not_found' });
  });
});

describe('POST /schedules with resultTo', () => {
  it('posts results in the Matrix room that gave the address, until it is closed', async () => {
    const room = await openRoom();
    room.say('results here');
    await expect.poll(() => room.texts.join()).toMatch(/matrix_/);
    const resultTo = /matrix_[\w-]+/.exec(room.texts.join())?.[0] ?? '';
    const user = new TestUser(host);
    const { id } = await createSchedule(user, { name: 'News', resultTo });
    expect(await readSchedule(user, id)).toMatchObject({ resultTo });
    await user.request('POST', `/schedules/${id}/run`);
    (await model.next()).answer('Nothing *new*');
    await expect.poll(() => room.texts.at(-1)).toBe('**News**\n\nNothing *new*');
    expect(room.answers.at(-1)?.content['m.relates_to']).toBeUndefined();
    await expect
      .poll(() => readRuns(user, id))
      .toMatchObject([{ delivery: { status: 'delivered', attempts: 1 } }]);
    room.say('results off');
    await expect.poll(() => room.texts.at(-1)).toBe('Closed.');
    await user.request('POST', `/schedules/${id}/run`);
    (await model.next()).answer('More');
    await expect
      .poll(async () => (await readRuns(user, id))[0]?.delivery)
      .toMatchObject({ status: 'pending', error: expect.stringContaining('closed') });
    const guess = { resultTo: `matrix_${'x'.repeat(24)}` };
    const refused = await user.request('PATCH', `/schedules/${id}`, { body: guess });
    expect(refused.body).toMatchObject({
      statusCode: 400,
      message: [expect.stringMatching(/^resultTo/)],
    });
    const both = { resultUrl: 'https://a.example' };
    expect((await user.request('PATCH', `/schedules/${id}`, { body: both })).status).toBe(400);
  });
});
