import { DatabaseSync } from 'node:sqlite';
import { defineTool } from '@sibyl/plugin-kit';
import type { Rule } from '@sibyl/protocol';
import { type Capability, generateSigner, mintDelegation } from '@sibyl/ucan';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { join, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const ran: string[] = [];
const aborted: unknown[] = [];
afterEach(() => {
  ran.splice(0);
  aborted.splice(0);
});

const createTool = (name: string) =>
  defineTool({
    name,
    description: `Does ${name}.`,
    inputSchema: z.object({}),
    run: () => {
      ran.push(name);
      return name;
    },
  });

const hang = defineTool({
  ...createTool('hang'),
  run: (_input, { signal }) => {
    ran.push('hang');
    signal.addEventListener('abort', () => aborted.push(signal.reason));
    return new Promise<string>(() => undefined);
  },
});

const mint = defineTool({
  ...createTool('mint'),
  run: async (_input, { ucan }) => {
    const audience = 'did:web:files.example';
    await ucan.mintInvocation({ audience, can: 'store/put', with: 'ixo:files/1' });
    ran.push('mint');
    return 'minted';
  },
});

const strict = { ...createTool('strict'), needsApproval: true };

const test = useControlledHost({
  plugins: [
    testPlugin('office', {
      getTools: () => [createTool('read'), createTool('send_mail'), hang, mint, strict],
    }),
    testPlugin('garden', { getTools: () => [createTool('water')] }),
  ],
});

interface Token {
  readonly signer?: TestUser['signer'];
  readonly seconds?: number;
  readonly capability?: Partial<Capability>;
  readonly more?: readonly Capability[];
}

function signRules(user: TestUser, rules: readonly object[], token: Token = {}): string {
  const { signer = user.signer, seconds = 600, more = [] } = token;
  const { did } = test.host;
  const nb = { rules } as never;
  const capability = { can: 'oracle/rules', with: `ixo:oracle:${did}`, nb, ...token.capability };
  const minted = mintDelegation({
    signer,
    audience: did,
    capabilities: [capability, ...more],
    expiration: Math.floor(Date.now() / 1000) + seconds,
    nonce: crypto.randomUUID(),
  });
  return minted.ok?.token ?? '';
}

const put = (user: TestUser, token: string) => user.request('PUT', '/rules', { body: { token } });

async function createUser(...rules: readonly Rule[]): Promise<TestUser> {
  const user = new TestUser(test.host);
  if (rules.length > 0) expect((await put(user, signRules(user, rules))).status).toBe(200);
  return user;
}

/** Sends a message; returns its stream and the first call of the model. */
async function send(user: TestUser) {
  const live = await stream(user, await openSession(user), { message: 'Go' });
  return { live, turn: await test.model.next() };
}

const listPending = async (user: TestUser) =>
  (await user.request('GET', '/approvals')).body.approvals;

describe('PUT, GET and DELETE /rules', () => {
  it('store, return and delete what the user has signed', async () => {
    const user = await createUser();
    expect((await user.request('GET', '/rules')).body).toEqual({ rules: [] });
    const rules = [{ match: 'plugin:mcp', effect: 'block' }];
    const stored = await put(user, signRules(user, rules));
    expect(stored).toMatchObject({ status: 200, body: { rules, cid: expect.any(String) } });
    expect((await user.request('GET', '/rules')).body).toEqual(stored.body);
    expect((await new TestUser(test.host).request('GET', '/rules')).body).toEqual({ rules: [] });
    expect((await user.request('DELETE', '/rules')).body).toEqual({ ok: true });
    expect((await user.request('GET', '/rules')).body).toEqual({ rules: [] });
    const { entries } = (await user.request('GET', '/activity')).body;
    expect(entries).toMatchObject([
      { kind: 'rules_changed', outcome: 'deleted' },
      { kind: 'rules_changed', outcome: 'stored' },
    ]);
  });

  const rules = [{ match: 'read', effect: 'ask' }];

  it.each<[string, readonly object[], Token]>([
    ['of another user', rules, { signer: generateSigner() }],
    ['that has expired', rules, { seconds: -1 }],
    ['of another ability', rules, { capability: { can: 'oracle/approve' } }],
    ['of another resource', rules, { capability: { with: 'ixo:oracle' } }],
    ['with a second capability', rules, { more: [{ can: 'store/get', with: 'a:b' }] }],
    ['with other caveats', rules, { capability: { nb: { rules: rules as never, more: 1 } } }],
    ['with an unknown effect', [{ match: 'read', effect: 'maybe' }], {}],
    ['with an invalid match', [{ match: 'a b', effect: 'ask' }], {}],
    ['with an unknown field', [{ match: 'a', effect: 'ask', until: 'x' }], {}],
    ['with too many rules', Array.from({ length: 65 }, () => rules[0] ?? {}), {}],
  ])('refuse a token %s', async (_, signed, token) => {
    const user = await createUser({ match: 'water', effect: 'block' });
    const refused = await put(user, signRules(user, signed, token));
    expect([refused.status, refused.body.code]).toEqual([400, 'invalid_rules']);
    expect((await user.request('GET', '/rules')).body.rules).toEqual([
      { match: 'water', effect: 'block' },
    ]);
  });

  it('refuse a token whose rules were replaced or deleted', async () => {
    const user = await createUser();
    const wide = signRules(user, []);
    expect((await put(user, wide)).status).toBe(200);
    // The same token again changes nothing.
    expect((await put(user, wide)).status).toBe(200);
    const narrow = signRules(user, [{ match: '*', effect: 'block' }]);
    expect((await put(user, narrow)).status).toBe(200);
    const again = await put(user, wide);
    expect([again.status, again.body.code]).toEqual([409, 'rules_replaced']);
    await user.request('DELETE', '/rules');
    expect((await put(user, narrow)).status).toBe(409);
  });

  it('do not delete rules for a login by delegation', async () => {
    const user = await createUser({ match: 'read', effect: 'block' });
    const response = await fetch(`${test.host.url}/rules`, {
      method: 'DELETE',
      headers: { 'x-ucan-delegation': user.delegate() },
    });
    expect(response.status).toBe(403);
    expect(await response.json()).toMatchObject({ code: 'own_key_required' });
    expect((await user.request('GET', '/rules')).body.rules).toHaveLength(1);
  });
});

describe('rules', () => {
  it('block tools: the model does not see them', async () => {
    const user = await createUser(
      { match: 'send_*', effect: 'block' },
      { match: 'plugin:garden', effect: 'block' },
    );
    const { live, turn } = await send(user);
    expect(turn.tools).toEqual(expect.arrayContaining(['read', 'hang']));
    expect(turn.tools).not.toContain('send_mail');
    expect(turn.tools).not.toContain('water');
    turn.answer('Fine.');
    await live.toEnd();
  });

  it('ask: the first rule that matches decides', async () => {
    const user = await createUser(
      { match: 'read', effect: 'allow' },
      { match: '*', effect: 'ask' },
    );
    const { live, turn } = await send(user);
    turn.call({ name: 'read', input: {} });
    (await test.model.next()).call({ name: 'water', input: {} });
    await live.toEnd();
    expect(ran).toEqual(['read']);
    expect(await listPending(user)).toMatchObject([
      { facts: { tool: 'water' }, requiredBy: 'rules' },
    ]);
  });

  it('do not allow what the tool itself requires approval for', async () => {
    const user = await createUser({ match: '*', effect: 'allow' });
    const { live, turn } = await send(user);
    turn.call({ name: 'strict', input: {} });
    await live.toEnd();
    expect(ran).toEqual([]);
    expect(await listPending(user)).toHaveLength(1);
  });

  it('stay in force when their token expires', async () => {
    const user = await createUser({ match: 'read', effect: 'block' });
    const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`);
    database.prepare('update rules set expires_at = 1 where owner = ?').run(user.did);
    database.close();
    const { live, turn } = await send(user);
    expect(turn.tools).not.toContain('read');
    turn.answer('Fine.');
    await live.toEnd();
  });

  it('of one user do not concern another', async () => {
    await createUser({ match: '*', effect: 'block' });
    const { live, turn } = await send(await createUser());
    expect(turn.tools).toContain('read');
    turn.answer('Fine.');
    await live.toEnd();
  });

  it.each(['block', 'ask'] as const)(
    'that change to %s abort a running call, and the model learns why',
    async (effect) => {
      const user = await createUser();
      const { live, turn } = await send(user);
      turn.call({ name: 'hang', input: {} });
      await expect.poll(() => ran).toEqual(['hang']);
      expect((await put(user, signRules(user, [{ match: 'plugin:office', effect }]))).status).toBe(
        200,
      );
      const next = await test.model.next();
      expect(next.results[0]).toContain('changed the rules');
      expect(aborted).toHaveLength(1);
      next.answer('Stopped.');
      expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
    },
  );

  it('that change leave calls alone that they still allow', async () => {
    const user = await createUser();
    const { live, turn } = await send(user);
    turn.call({ name: 'hang', input: {} });
    await expect.poll(() => ran).toEqual(['hang']);
    await put(user, signRules(user, [{ match: 'read', effect: 'block' }]));
    await put(user, signRules(user, [{ match: 'hang', effect: 'block' }]));
    (await test.model.next()).answer('Stopped.');
    await live.toEnd();
    expect(aborted).toHaveLength(1);
  });

  it('that change during a turn apply to its next call', async () => {
    const user = await createUser();
    const { live, turn } = await send(user);
    await put(user, signRules(user, [{ match: 'read', effect: 'block' }]));
    turn.call({ name: 'read', input: {} });
    const next = await test.model.next();
    expect(next.results[0]).toContain('block');
    next.answer('Fine.');
    await live.toEnd();
    expect(ran).toEqual([]);
  });

  it('block abilities: nothing is signed for them', async () => {
    const user = await createUser({ match: 'can:store/*', effect: 'block' });
    const capabilities = [{ can: 'store/*', with: 'ixo:files/*' }];
    await user.request('POST', '/delegation', { body: { raw: user.delegate({ capabilities }) } });
    const { live, turn } = await send(user);
    turn.call({ name: 'mint', input: {} });
    const next = await test.model.next();
    expect(next.results[0]).toContain('block store/put');
    next.answer('Fine.');
    await live.toEnd();
    expect(ran).toEqual([]);
  });

  it('ask for abilities: the call waits, and signs once it is approved', async () => {
    const user = await createUser({ match: 'can:store/put', effect: 'ask' });
    const capabilities = [{ can: 'store/*', with: 'ixo:files/*' }];
    await user.request('POST', '/delegation', { body: { raw: user.delegate({ capabilities }) } });
    const { live, turn } = await send(user);
    turn.call({ name: 'mint', input: {} });
    await live.toEnd();
    const [approval] = await listPending(user);
    expect(approval).toMatchObject({ facts: { tool: 'mint' }, requiredBy: 'rules' });
    const denied = await user.request('POST', `/approvals/${approval.id}`, {
      body: { decision: 'deny' },
    });
    (await test.model.next()).answer('Fine.');
    await (await join(user, denied.body.runId, 0)).toEnd();
    expect(ran).toEqual([]);
  });
});
