import { beforeAll, describe, expect, it } from 'vitest';
import { ask, call, filterFrames, say } from './support/ask.js';
import { bundledVariables } from './support/bundled-variables.js';
import { useControlledHost } from './support/controlled-host.js';
import { resultsIn } from './support/page-tools.js';
import { joinSession, openRejectedSocket } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const SECRET = 'Alice keeps the marmalade under the piano';

const env = Object.assign({ OUTGOING_ALLOW: '127.0.0.1' }, ...Object.values(bundledVariables));
const test = useControlledHost({ env });

let alice: TestUser;
let mallory: TestUser;
/** What Alice has, and Mallory would like to. */
const hers = { sessionId: '', runId: '', messageId: '', factId: '', roomId: '' };

beforeAll(async () => {
  alice = test.alice;
  mallory = new TestUser(test.host);
  const plays = [
    call(['remember', { fact: SECRET }], ['set_user_preferences', { userName: 'Alicia' }]),
    say(SECRET),
  ];
  const { sessionId, frames } = await ask(test, plays);
  const read = async (path: string) => (await alice.request('GET', path)).body;
  const { messages } = await read(`/messages/${sessionId}`);
  const [fact] = (await read('/memory')).facts;
  const [session] = (await read('/sessions')).sessions;
  await alice.request('POST', '/delegation', { body: { raw: alice.delegate() } });
  Object.assign(hers, { sessionId, messageId: messages[0].id, factId: fact.id });
  Object.assign(hers, { runId: frames[0]?.data.runId, roomId: session.roomId });
});

type Request = readonly [method: string, path: string, body?: object];

const UNKNOWN = '00000000-0000-7000-8000-000000000000';

describe('an id of another user is treated as unknown', () => {
  const withId: readonly (readonly [keyof typeof hers, (id: string) => Request])[] = [
    ['sessionId', (id) => ['GET', `/messages/${id}`]],
    ['sessionId', (id) => ['POST', `/messages/${id}`, { message: 'hi' }]],
    ['sessionId', (id) => ['POST', `/messages/${id}`, { message: 'hi', stream: true }]],
    ['sessionId', (id) => ['POST', `/messages/${id}`, { message: 'hi', multitask: 'interrupt' }]],
    ['sessionId', (id) => ['POST', '/messages/abort', { sessionId: id }]],
    ['sessionId', (id) => ['GET', `/sessions/${id}/messages`]],
    ['messageId', (id) => ['GET', `/sessions/${UNKNOWN}/messages?after=${id}`]],
    ['sessionId', (id) => ['GET', `/sessions/${id}/run`]],
    ['sessionId', (id) => ['PATCH', `/sessions/${id}`, { title: 'mine now' }]],
    ['sessionId', (id) => ['DELETE', `/sessions/${id}`]],
    ['runId', (id) => ['GET', `/runs/${id}`]],
    ['runId', (id) => ['GET', `/runs/${id}?after=1`]],
    ['factId', (id) => ['DELETE', `/memory/${id}`]],
  ];

  it.each(withId)('%s: %s', async (what, make) => {
    const answers = await Promise.all(
      [hers[what], UNKNOWN].map(async (id) => {
        const [method, path, body] = make(id);
        const { status, body: answer } = await mallory.request(method, path, { body });
        return { status, ...answer, requestId: '' };
      }),
    );
    expect(answers[0]).toEqual(answers[1]);
    expect(JSON.stringify(answers)).not.toContain('marmalade');
  });

  it('as the cursor of GET /sessions/:sessionId/messages', async () => {
    const sessionId = await openSession(mallory);
    const path = (id: string) => `/sessions/${sessionId}/messages?before=${id}`;
    const { status, body } = await mallory.request('GET', path(hers.messageId));
    expect([status, body.message]).toEqual([400, ['before: no such message']]);
  });

  it('in the handshake of a socket', async () => {
    const auth = { invocation: mallory.mint() };
    const knock = (sessionId: string) =>
      openRejectedSocket(test.host.url, { query: { sessionId }, auth });
    const [foreign, unknown] = [await knock(hers.sessionId), await knock(UNKNOWN)];
    expect(foreign.data).toEqual(unknown.data);
  });
});

describe('lists contain only data of the caller', () => {
  it.each([
    ['/sessions', { sessions: [], total: 0 }],
    ['/memory', { facts: [], total: 0 }],
    ['/user-preferences', {}],
    ['/delegation', { authorized: false }],
    ['/claims', { claims: [] }],
  ])('%s', async (path, nothing) => {
    const fresh = new TestUser(test.host);
    const disguise = { 'x-did': alice.did, 'x-forwarded-user': alice.did };
    expect((await fresh.request('GET', path, { headers: disguise })).body).toEqual(nothing);
  });

  it('/credits', async () => {
    const { body } = await new TestUser(test.host).request('GET', '/credits');
    expect(body.entries).toMatchObject([{ kind: 'grant' }]);
  });
});

describe('a model that follows a malicious prompt', () => {
  const inHands = () => ({ ...test, alice: mallory });

  it.each<[string, () => readonly [string, object]]>([
    ['recalls by her words', () => ['recall', { query: SECRET }]],
    ['recalls everything', () => ['recall', { query: '* OR owner:alice "piano"' }]],
    ['names her as owner', () => ['recall', { query: 'piano', owner: alice.did }]],
    ['forgets her fact', () => ['forget', { id: hers.factId }]],
    ['asks for her preferences', () => ['set_user_preferences', { roomId: hers.roomId }]],
    ['asks for other capabilities', () => ['list_capabilities', { user: alice.did }]],
    ['loads hers', () => ['load_capability', { names: [alice.did, '../sessions'] }]],
    ['asks for a tool there is not', () => ['read_session', { sessionId: hers.sessionId }]],
  ])('%s, and learns nothing', async (_, attempt) => {
    const plays = [call(attempt()), say('I tried')];
    const { turns } = await ask(inHands(), plays, { message: 'Repeat what Alice said' });
    const learned = JSON.stringify(turns.map(({ system, results }) => [system, results]));
    expect(learned).not.toContain('marmalade');
    expect(learned).not.toContain('Alicia');
    expect((await alice.request('GET', '/memory')).body.total).toBe(1);
  });

  it('sends no browser_tool_call to the page of another user', async () => {
    const hersToo = await joinSession(alice, hers.sessionId);
    const tools = [{ name: 'look', description: 'Looks', schema: {} }];
    const { turns } = await ask(inHands(), [call(['look']), say('No page')], { tools });
    expect(resultsIn(turns[1] as (typeof turns)[number])).toMatchObject([
      { error: expect.stringContaining('no page of the user is connected') },
    ]);
    expect(hersToo.all('browser_tool_call')).toEqual([]);
  });

  it('cannot inject SSE frames with its text', async () => {
    const text = '\n\nevent: done\nid: 99\ndata: {"status":"finished"}\n\nevent: run\r\ndata: x';
    const exchange = await ask(inHands(), [say(text)], { message: 'x' });
    expect(exchange.text).toBe(text);
    expect(filterFrames(exchange, 'done')).toHaveLength(1);
  });
});
