import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { PluginContext } from '@sibyl/plugin-kit';
import type { ReplyPart } from '@sibyl/protocol';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
    return [];
  },
  getMiddlewares: () => [
    {
      name: 'clients',
      beforeModel: (_, { session, user }) => {
        clients.push(`${session.client} ${user.did} ${user.timezone}`);
        return undefined;
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

describe('turns a plugin brings', () => {
  const user = 'T1:U1';
  const owner = 'did:chat:T1:U1';

  async function collect(parts: AsyncIterable<ReplyPart>): Promise<ReplyPart[]> {
    const all: ReplyPart[] = [];
    for await (const part of parts) all.push(part);
    return all;
  }

  it('belong to the user as the plugin knows them, and are read to their end', async () => {
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

  it('are started once for the same delivery', async () => {
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

  it('can be aborted by their user alone', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const parts = await context.turns.start({ user, sessionId, client: 'chat', message: 'Long' });
    const asked = await model.next();
    asked.say('Well');
    expect(await context.turns.abort({ user: 'T1:U2', sessionId })).toBe(false);
    expect(await context.turns.abort({ user, sessionId })).toBe(true);
    expect((await collect(parts)).at(-1)).toMatchObject({ data: { status: 'aborted' } });
  });

  it('find no session of anybody else', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { sessionId, client: 'chat', message: 'Mine?' };
    await expect(context.turns.start({ ...turn, user: 'T1:U2' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
    const alice = new TestUser(host);
    expect((await alice.request('GET', `/messages/${sessionId}`)).status).toBe(404);
  });

  it.each(['', 'a b', '../x', 'x'.repeat(201), 'ü'])('refuse the user %j', async (bad) => {
    await expect(context.turns.openSession(bad)).rejects.toMatchObject({ code: 'bad_request' });
  });

  it('refuse a message that the contract refuses', async () => {
    const { sessionId } = await context.turns.openSession(user);
    const turn = { user, sessionId, client: 'chat', message: '' };
    await expect(context.turns.start(turn)).rejects.toMatchObject({ code: 'validation_failed' });
  });
});

describe('tokens that count once', () => {
  const can = 'mcp/call';
  const resource = () => `ixo:oracle:${host.did}:mcp/files/read`;
  const tokenOf = (user: TestUser, more: object = {}) =>
    user.delegate({ capabilities: [{ can, with: resource() }], ttlSeconds: 300, ...more });

  it('are accepted once, of the caller, for exactly what they say', async () => {
    const alice = new TestUser(host);
    const token = tokenOf(alice);
    const wanted = { can, with: resource(), issuer: alice.did };
    const other = `${resource()}x`;
    expect(await context.ucan.acceptOnce(token, { ...wanted, with: other })).toHaveProperty(
      'fault',
    );
    expect(await context.ucan.acceptOnce(token, { ...wanted, can: 'mcp/list' })).toHaveProperty(
      'fault',
    );
    expect(
      await context.ucan.acceptOnce(token, { ...wanted, issuer: new TestUser(host).did }),
    ).toHaveProperty('fault');
    expect(await context.ucan.acceptOnce(token, wanted)).toEqual({ ok: true });
    expect(await context.ucan.acceptOnce(token, wanted)).toEqual({
      fault: 'the invocation was used before',
    });
  });

  it('are accepted once of fifty at the same time', async () => {
    const alice = new TestUser(host);
    const token = tokenOf(alice);
    const wanted = { can, with: resource(), issuer: alice.did };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => context.ucan.acceptOnce(token, wanted)),
    );
    expect(answers.filter((answer) => 'ok' in answer)).toHaveLength(1);
  });

  it('are refused for another oracle, when expired, or when they are none', async () => {
    const alice = new TestUser(host);
    const wanted = { can, with: resource(), issuer: alice.did };
    const tokens = [
      tokenOf(alice, { audience: generateSigner().did }),
      tokenOf(alice, { ttlSeconds: -10 }),
      alice.mint(),
      'garbage',
    ];
    for (const token of tokens)
      expect(await context.ucan.acceptOnce(token, wanted)).toHaveProperty('fault');
  });
});

it('signs for itself, at services that prove who they are', async () => {
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

it('asks models outside of the conversation', async () => {
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

it('fetches nothing from inside the network', async () => {
  const server = createServer((_, response) => response.end('secret'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await expect(context.fetch(`http://127.0.0.1:${port}/`)).rejects.toThrow();
  await expect(context.fetch(`https://127.0.0.1:${port}/`)).rejects.toThrow();
  server.close();
});

it('writes to the log under its name', () => {
  context.logger.info({ a: 1 }, 'hello from the plugin');
  expect(host.log.find(({ msg }) => msg === 'hello from the plugin')).toMatchObject({
    plugin: 'chat',
    a: 1,
  });
});

it('shows no secret of the host, however one looks at it', () => {
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
