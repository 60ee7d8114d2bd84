import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { defineTool, type PluginContext } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { startUcantoService, type UcantoService } from './support/ucanto-service.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let service: UcantoService;
let host: TestHost;
let context: PluginContext;
const clients: string[] = [];
const secrets = {
  ORACLE_MNEMONIC: 'abandon abandon about',
  MODEL_API_KEY: 'key of the model',
  OPENAI_API_KEY: 'key of the provider',
};

const chat = testPlugin('chat', {
  getTools: (given) => {
    context = given;
    return [
      defineTool({
        name: 'paint',
        description: 'Paints.',
        inputSchema: z.object({}),
        visibility: 'always',
        run: (_, { interrupt }) =>
          interrupt({ kind: 'input_required', data: 'Which color?', schema: z.string() }),
      }),
    ];
  },
  getMiddlewares: () => [
    {
      name: 'clients',
      wrapModel: (request, next, { session, user }) => {
        clients.push(`${session.client} ${user.did} ${user.timezone}`);
        return next(request);
      },
    },
  ],
});

beforeAll(async () => {
  model = await startControlledModel();
  service = await startUcantoService();
  const env = { ...model.env, ...secrets, OUTGOING_ALLOW: new URL(service.url).host };
  host = await startHost({ bundled: [], plugins: [chat], env });
});
afterAll(async () => {
  await host.close();
  model.close();
  service.close();
});

describe('context.turns', () => {
  const user = 'T1:U1';
  const owner = 'did:chat:T1:U1';

  async function collect(parts: AsyncIterable<ReplyPart>): Promise<ReplyPart[]> {
    const all: ReplyPart[] = [];
    for await (const part of parts) all.push(part);
    return all;
  }

  it('start runs a turn for a user of the plugin', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { user, sessionId, client: 'chat', timezone: 'Africa/Nairobi' };
    const parts = await context.turns.start({ ...turn, message: 'Jambo' });
    const asked = await model.next();
    expect(asked.body.messages.at(-1).content).toBe('Jambo');
    asked.say('Jambo ');
    asked.say('sana');
    asked.finish();
    const all = await collect(parts);
    const text = all.flatMap((part) => (part.event === 'message' ? part.data.content : []));
    expect(text.join('')).toBe('Jambo sana');
    expect(all[0]?.event).toBe('run');
    expect(all.at(-1)).toMatchObject({ event: 'done', data: { status: 'finished' } });
    expect(clients).toEqual([`chat ${owner} Africa/Nairobi`]);
  });

  it('start runs one turn for the same idempotency key', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { user, sessionId, client: 'chat', message: 'Again', idempotencyKey: 'event-1' };
    const [first, second] = await Promise.all([
      context.turns.start(turn),
      context.turns.start(turn),
    ]);
    const asked = await model.next();
    asked.say('Once');
    asked.finish();
    const runs = (await Promise.all([collect(first), collect(second)])).map(([run]) => run?.data);
    expect(runs[0]).toEqual(runs[1]);
  });

  it('abort works only for the user of the turn', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const parts = await context.turns.start({ user, sessionId, client: 'chat', message: 'Long' });
    const asked = await model.next();
    asked.say('Well');
    expect(await context.turns.abort({ user: 'T1:U2', sessionId })).toBe(false);
    expect(await context.turns.abort({ user, sessionId })).toBe(true);
    expect((await collect(parts)).at(-1)).toMatchObject({ data: { status: 'aborted' } });
  });

  it('start finds no session of another user', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { sessionId, client: 'chat', message: 'Mine?' };
    await expect(context.turns.start({ ...turn, user: 'T1:U2' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
    const alice = new TestUser(host);
    expect((await alice.request('GET', `/messages/${sessionId}`)).status).toBe(404);
  });

  /** A turn that waits for its user. */
  async function pause() {
    const { sessionId } = await context.turns.openSession(user);
    const parts = await context.turns.start({ user, sessionId, client: 'chat', message: 'Paint' });
    (await model.next()).call({ name: 'paint', input: {} });
    const { data } = (await collect(parts)).at(-1) ?? expect.unreachable();
    const { runId } = data as { runId: string };
    return { sessionId, run: { owner, runId } };
  }

  it('continuation returns the run that continues a paused turn, wherever it was answered', async () => {
    const { sessionId, run } = await pause();
    const other = await pause();
    const unknown = { owner, runId: 'unknown' };
    const foreign = { owner: 'did:chat:T1:U2', runId: run.runId };
    expect(await context.turns.findPaused([run, unknown, foreign])).toEqual([run]);
    expect(await context.turns.continuation(run)).toBeUndefined();
    const noticed: string[] = [];
    onTestFinished(context.turns.onTurn((turn) => noticed.push(turn.sessionId)));
    const [question] = await context.turns.pending({ owner, sessionId });
    expect(question).toMatchObject({ runId: run.runId, data: 'Which color?' });
    const { runId } = await context.turns.answer({ owner, id: question?.id ?? '', value: 'red' });
    (await model.next()).answer('It is red');
    await expect.poll(() => noticed.length).toBe(2);
    expect(new Set(noticed)).toEqual(new Set([sessionId]));
    expect(await context.turns.continuation(run)).toMatchObject({
      runId,
      isStopped: false,
      questions: [{ id: question?.id, outcome: 'answered', value: 'red' }],
    });
    expect(await context.turns.findPaused([run, other.run])).toEqual([other.run]);
    await context.turns.abort({ user, sessionId: other.sessionId });
    const stopped = await context.turns.continuation(other.run);
    expect(stopped).toMatchObject({ isStopped: true, questions: [{ outcome: 'cancelled' }] });
    expect(stopped?.runId).toBeUndefined();
    expect(await context.turns.continuation(unknown)).toMatchObject({ questions: [] });
  });

  it.each(['', 'a b', '../x', 'x'.repeat(201), 'ü'])('rejects the user %j', async (bad) => {
    await expect(context.turns.openSession(bad)).rejects.toMatchObject({ code: 'bad_request' });
  });

  it('start rejects an invalid message', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { user, sessionId, client: 'chat', message: '' };
    await expect(context.turns.start(turn)).rejects.toMatchObject({ code: 'validation_failed' });
  });
});

describe('context.ucan.acceptOnce', () => {
  const can = 'mcp/call';
  const resource = () => `ixo:oracle:${host.did}:mcp/files/read`;
  const mintToken = (user: TestUser, more: object = {}) =>
    user.delegate({ capabilities: [{ can, with: resource() }], ttlSeconds: 300, ...more });

  it('accepts a token once, of its issuer, for its exact capability', async () => {
    const alice = new TestUser(host);
    const token = mintToken(alice);
    const wanted = { can, with: resource(), issuer: alice.did };
    const other = `${resource()}x`;
    expect(await context.ucan.acceptOnce(token, { ...wanted, with: other })).toHaveProperty(
      'error',
    );
    expect(await context.ucan.acceptOnce(token, { ...wanted, can: 'mcp/list' })).toHaveProperty(
      'error',
    );
    expect(
      await context.ucan.acceptOnce(token, { ...wanted, issuer: new TestUser(host).did }),
    ).toHaveProperty('error');
    expect(await context.ucan.acceptOnce(token, wanted)).toEqual({ ok: true });
    expect(await context.ucan.acceptOnce(token, wanted)).toEqual({
      error: 'the invocation was used before',
    });
  });

  it('accepts a token once in fifty concurrent calls', async () => {
    const alice = new TestUser(host);
    const token = mintToken(alice);
    const wanted = { can, with: resource(), issuer: alice.did };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => context.ucan.acceptOnce(token, wanted)),
    );
    expect(answers.filter((answer) => 'ok' in answer)).toHaveLength(1);
  });

  it('rejects tokens for another oracle, expired and invalid ones', async () => {
    const alice = new TestUser(host);
    const wanted = { can, with: resource(), issuer: alice.did };
    const tokens = [
      mintToken(alice, { audience: generateSigner().did }),
      mintToken(alice, { ttlSeconds: -10 }),
      alice.mint(),
      'garbage',
    ];
    for (const token of tokens)
      expect(await context.ucan.acceptOnce(token, wanted)).toHaveProperty('error');
  });
});

it('context.ucan.mintInvocation signs for services that prove their DID', async () => {
  const audience = await context.ucan.resolveServiceDid(service.url);
  expect(audience).toBe(service.did);
  const request = { audience, can: 'store/add', with: host.did };
  const tokens = [
    await context.ucan.mintInvocation(request),
    await context.ucan.mintInvocation(request),
  ];
  expect(tokens[0]).not.toBe(tokens[1]);
  for (const token of tokens)
    expect(await service.execute(token)).toMatchObject({ ok: { stored: host.did } });
  expect(service.calls).toEqual(tokens.map(() => ({ issuer: host.did, with: host.did })));
  await expect(context.ucan.resolveServiceDid('http://127.0.0.1:1')).rejects.toThrow(/prove/);
});

it('context.llm calls models outside of turns', async () => {
  const answer = context.llm.get('utility').generate({ system: 'Be brief', prompt: 'Hello?' });
  const asked = await model.next();
  expect(asked.body.messages).toEqual([
    { role: 'system', content: 'Be brief' },
    { role: 'user', content: 'Hello?' },
  ]);
  asked.say('Hi');
  asked.finish();
  expect(await answer).toMatchObject({ text: 'Hi', use: { input: 7, output: 3 } });
});

it('context.fetch rejects private addresses', async () => {
  const server = createServer((_, response) => response.end('secret'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await expect(context.fetch(`http://127.0.0.1:${port}/`)).rejects.toThrow();
  await expect(context.fetch(`https://127.0.0.1:${port}/`)).rejects.toThrow();
  server.close();
});

it('context.logger logs the name of the plugin', () => {
  context.logger.info({ a: 1 }, 'hello from the plugin');
  expect(host.log.find(({ msg }) => msg === 'hello from the plugin')).toMatchObject({
    plugin: 'chat',
    a: 1,
  });
});

it('PluginContext exposes no secret of the host', () => {
  const { logger: _, ...rest } = context;
  const values = [...reachable(rest)];
  expect(values).toContain(context.ucan);
  const seed = createHash('sha256').update(secrets.ORACLE_MNEMONIC).digest();
  const isSecret = (value: unknown) =>
    Object.values(secrets).some((secret) => secret === value) ||
    (value instanceof Uint8Array && seed.equals(value));
  expect(values.filter(isSecret)).toEqual([]);
});

/** Everything that can be got at from a value by its properties. */
function reachable(start: unknown): Set<unknown> {
  const seen = new Set([start]);
  for (const value of seen) {
    if (!(value instanceof Object) || value instanceof Uint8Array) continue;
    for (const { value: inner } of Object.values(Object.getOwnPropertyDescriptors(value)))
      seen.add(inner);
  }
  return seen;
}
