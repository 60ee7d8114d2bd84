import { tmpdir } from 'node:os';
import { RULES_ABILITY, type Rule, type RuleEffect, toOracleResource } from '@sibyl/protocol';
import {
  createDidKeyResolver,
  createRevocationSet,
  createVerifier,
  generateSigner,
  mintDelegation,
  systemClock,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { MemoryHostBus } from '../bus/host-bus.js';
import { DiskSpace } from '../store/disk-space.js';
import type { StoredRules } from '../store/rules-store.js';
import type { Caller } from './caller.js';
import { findEffect, LiveRules, strictest, UserRules } from './user-rules.js';

const logger = pino({ level: 'silent' });
const TOOL = { tool: 'send_mail', plugin: 'mail' };
const ABILITY = { can: 'store/write' };

const rule = (match: string, effect: RuleEffect) => ({ match, effect });

it.each([
  ['its name', 'send_mail', 'block'],
  ['its name with a kind', 'tool:send_mail', 'block'],
  ['the beginning of its name', 'send_*', 'block'],
  ['every tool', '*', 'block'],
  ['its plugin', 'plugin:mail', 'block'],
  ['the beginning of its plugin', 'plugin:ma*', 'block'],
  ['another tool', 'send_mai', 'allow'],
  ['the beginning of other names', 'read_*', 'allow'],
  ['another plugin', 'plugin:send_mail', 'allow'],
  ['the name of its plugin', 'mail', 'allow'],
  ['abilities', 'can:*', 'allow'],
  ['an ability of its name', 'can:send_mail', 'allow'],
])('findEffect of a tool with a rule for %s: %s', (_, match, effect) => {
  expect(findEffect([rule(match, 'block')], TOOL)).toBe(effect);
});

it.each([
  ['itself', 'can:store/write', 'block'],
  ['all of its kind', 'can:store/*', 'block'],
  ['the beginning of its name', 'can:store/wr*', 'block'],
  ['the beginning of its kind', 'can:sto*', 'block'],
  ['the beginning of other names', 'can:store/re*', 'allow'],
  ['every ability', 'can:*', 'block'],
  ['another one', 'can:store/read', 'allow'],
  ['a tool of its name', 'tool:store/write', 'allow'],
  ['a plugin of its name', 'plugin:store/write', 'allow'],
])('findEffect of an ability with a rule for %s: %s', (_, match, effect) => {
  expect(findEffect([rule(match, 'block')], ABILITY)).toBe(effect);
});

it('findEffect is that of the first rule that matches', () => {
  const rules = [rule('send_mail', 'ask'), rule('send_*', 'block'), rule('*', 'allow')];
  expect(findEffect(rules, TOOL)).toBe('ask');
  expect(findEffect(rules, { ...TOOL, tool: 'send_file' })).toBe('block');
  expect(findEffect(rules, { ...TOOL, tool: 'read' })).toBe('allow');
  expect(findEffect([], TOOL)).toBe('allow');
  for (const can of ['store/write', 'store/*']) {
    const twice = [rule(`can:${can}`, 'ask'), rule(`can:${can}`, 'block')];
    expect(findEffect(twice, { can })).toBe('ask');
  }
});

it('findEffect of an ability that includes others is the strictest of theirs', () => {
  const rules = [rule('can:store/*', 'allow'), rule('can:store/write', 'ask')];
  expect(findEffect(rules, { can: 'store/*' })).toBe('ask');
  expect(findEffect([...rules, rule('can:store/delete', 'block')], { can: '*' })).toBe('block');
  expect(findEffect(rules, { can: 'store/read' })).toBe('allow');
  expect(findEffect([...rules, rule('tool:store/read', 'block')], { can: 'store/*' })).toBe('ask');
});

it.each([
  ['can:store/wr*', 'store/*'],
  ['can:sto*', 'store/*'],
  ['can:store/*', 'store/../pay'],
  ['can:store/*', 'store/'],
])('findEffect: a rule for %s restricts %s', (match, can) => {
  expect(findEffect([rule(match, 'block')], { can })).toBe('block');
});

it('strictest is the strictest of all, and block without any', () => {
  expect(strictest('allow', 'ask')).toBe('ask');
  expect(strictest('block', 'allow', 'ask')).toBe('block');
  expect(strictest('allow')).toBe('allow');
  expect(strictest()).toBe('block');
});

it('LiveRules blocks everything while changed rules cannot be read, then applies them', async () => {
  const states: (StoredRules | undefined | Error)[] = [undefined, new Error('away')];
  const allow = { cid: 'b', rules: [{ match: 'send_mail', effect: 'ask' }] };
  let onChange = () => {};
  const rules = new LiveRules({
    load: async () => {
      const state = states.length > 0 ? states.shift() : (allow as unknown as StoredRules);
      if (state instanceof Error) throw state;
      return state;
    },
    watch: (_, listener) => {
      onChange = listener;
      return () => {};
    },
    logger,
  });
  await rules.reload();
  const effects = () => [findEffect(rules.rules, TOOL), findEffect(rules.rules, ABILITY)];
  expect(effects()).toEqual(['allow', 'allow']);
  const seen: unknown[] = [];
  rules.onChange(() => seen.push(effects()));
  onChange();
  await expect
    .poll(() => seen)
    .toEqual([
      ['block', 'block'],
      ['ask', 'allow'],
    ]);
  rules.close();
});

it('LiveRules blocks everything while the store does not answer, and ignores an answer that comes after a later one', async () => {
  const waiting: ((stored: StoredRules | undefined) => void)[] = [];
  let onChange = () => {};
  const rules = new LiveRules({
    load: () => new Promise((resolve) => waiting.push(resolve)),
    watch: (_, listener) => {
      onChange = listener;
      return () => {};
    },
    logger,
  });
  const answer = (index: number, effect: 'ask' | 'allow') =>
    waiting[index]?.({
      cid: effect,
      rules: [{ match: 'send_mail', effect }],
    } as unknown as StoredRules);
  const first = rules.reload();
  answer(0, 'allow');
  await first;
  expect(findEffect(rules.rules, TOOL)).toBe('allow');
  onChange();
  await expect.poll(() => findEffect(rules.rules, TOOL)).toBe('block');
  await expect.poll(() => waiting.length).toBe(3);
  answer(2, 'ask');
  await expect.poll(() => findEffect(rules.rules, TOOL)).toBe('ask');
  answer(1, 'allow');
  await new Promise(setImmediate);
  expect(findEffect(rules.rules, TOOL)).toBe('ask');
  rules.close();
});

/** Rules whose store answers when the test does, and what is watched. */
function openSlowRules() {
  const waiting: ((stored: StoredRules | undefined) => void)[] = [];
  const watched: string[] = [];
  const rules = new LiveRules({
    load: () => new Promise((resolve) => waiting.push(resolve)),
    watch: (cid) => {
      watched.push(cid);
      return () => void watched.splice(watched.indexOf(cid), 1);
    },
    logger,
  });
  const load = async (cid?: string, act = () => {}) => {
    const loading = rules.reload();
    act();
    const stored = { rules: [rule('*', 'ask')], expiresAt: null, storedAt: 0 };
    waiting.shift()?.(cid === undefined ? undefined : { ...stored, cid });
    await loading;
  };
  return { rules, watched, load };
}

it('LiveRules watches the rules it has read, and nothing once it is closed', async () => {
  const { rules, watched, load } = openSlowRules();
  await load();
  expect(watched).toEqual(['']);
  await load('a');
  expect(watched).toEqual(['a']);
  rules.close();
  expect(watched).toEqual([]);
});

it('LiveRules that is closed while it reads does not watch and calls no listener', async () => {
  const { rules, watched, load } = openSlowRules();
  const onChange = vi.fn();
  rules.onChange(onChange);
  await load('a', () => rules.close());
  expect(watched).toEqual([]);
  expect(onChange).not.toHaveBeenCalled();
  expect(findEffect(rules.rules, TOOL)).toBe('ask');
});

it('LiveRules calls listeners after each change until they stop', async () => {
  const { rules, load } = openSlowRules();
  const seen: string[] = [];
  const stop = rules.onChange(() => seen.push(`first ${findEffect(rules.rules, TOOL)}`));
  rules.onChange(() => seen.push('second'));
  await load('a');
  stop();
  await load();
  expect(seen).toEqual(['first ask', 'second', 'second']);
});

describe('UserRules', () => {
  const test = useStore('sqlite');
  afterEach(() => void vi.useRealTimers());
  const oracle = generateSigner();
  const ASK = [rule('send_mail', 'ask')];
  const BLOCK = [rule('send_mail', 'block')];

  function open({
    operator = [],
    disk,
  }: {
    readonly operator?: readonly string[];
    readonly disk?: DiskSpace;
  } = {}) {
    const revocations = createRevocationSet({ clock: systemClock });
    const resolver = createDidKeyResolver();
    const verifier = createVerifier({ audience: oracle.did, resolver, revocations });
    const bus = new MemoryHostBus('own', logger);
    const send = vi.spyOn(bus, 'send');
    const store = test.store.rules;
    const userRules = new UserRules({
      oracleDid: oracle.did,
      verifier,
      store,
      disk,
      bus,
      logger,
      operator,
    });
    return { userRules, store, bus, send, revocations };
  }

  type Fields = Partial<Parameters<typeof mintDelegation>[0]>;

  function createUser() {
    const signer = generateSigner();
    const caller: Caller = {
      did: signer.did,
      expiration: systemClock() + 300,
      presentedDelegation: undefined,
    };
    const sign = (rules: readonly Rule[], fields: Fields = {}) => {
      const nb = { rules: rules.map((each) => ({ ...each })) };
      const { ok, error } = mintDelegation({
        signer,
        audience: oracle.did,
        capabilities: [{ can: RULES_ABILITY, with: toOracleResource(oracle.did), nb }],
        expiration: 4_000_000_000,
        nonce: crypto.randomUUID(),
        ...fields,
      });
      if (error) throw new Error(error.detail);
      return ok;
    };
    return { did: signer.did, caller, sign };
  }

  it('put returns what get returns: the rules, when they were stored and when they expire', async () => {
    const { userRules } = open();
    const alice = createUser();
    const { token, cid } = alice.sign(ASK);
    const before = Date.now();
    const view = await userRules.put(alice.caller, token);
    expect(view).toEqual({
      rules: ASK,
      cid,
      storedAt: expect.any(String),
      expiration: 4_000_000_000,
    });
    expect(Date.parse(view.storedAt ?? '')).toBeGreaterThanOrEqual(before);
    expect(await userRules.get(alice.did)).toEqual(view);
    expect(await userRules.get(createUser().did)).toEqual({ rules: [] });
  });

  it('put charges the caller, and stores nothing that the caller cannot pay for', async () => {
    const { userRules } = open();
    const alice = createUser();
    const poor = { ...alice.caller, charge: () => undefined };
    await expect(userRules.put(poor, alice.sign(ASK).token)).rejects.toMatchObject({
      code: 'rate_limited',
    });
    expect(await userRules.get(alice.did)).toEqual({ rules: [] });
  });

  it('put stores nothing while space is low: anyone can sign any number of rules', async () => {
    const disk = new DiskSpace(tmpdir(), Number.MAX_SAFE_INTEGER);
    const { userRules } = open({ disk });
    const alice = createUser();
    const put = userRules.put(alice.caller, alice.sign(ASK).token);
    await expect(put).rejects.toMatchObject({ code: 'disk_full' });
    expect(await userRules.get(alice.did)).toEqual({ rules: [] });
  });

  it('get shows the matches of the operator, also without own rules', async () => {
    const { userRules } = open({ operator: ['send_*'] });
    const alice = createUser();
    expect(await userRules.get(alice.did)).toEqual({ rules: [], operator: ['send_*'] });
    expect(await userRules.put(alice.caller, alice.sign(ASK).token)).toMatchObject({
      rules: ASK,
      operator: ['send_*'],
    });
  });

  const resource = toOracleResource(oracle.did);
  it.each<[string, Fields, RegExp]>([
    ['expired', { expiration: systemClock() - 60 }, /expired/],
    ['signed by another user', { signer: generateSigner() }, /another user/],
    ['for another oracle', { audience: generateSigner().did }, /from you to this oracle/],
    [
      'without rules',
      { capabilities: [{ can: RULES_ABILITY, with: resource, nb: {} }] },
      /nb must be .+: .+/,
    ],
  ])('put refuses a token that is %s, and says why', async (_, fields, message) => {
    const { userRules, send } = open();
    const alice = createUser();
    await expect(userRules.put(alice.caller, alice.sign(ASK, fields).token)).rejects.toMatchObject({
      code: 'invalid_rules',
      message: expect.stringMatching(message),
    });
    expect(await userRules.get(alice.did)).toEqual({ rules: [] });
    expect(send).not.toHaveBeenCalled();
  });

  it('put refuses a revoked token, and one whose rules were replaced', async () => {
    const { userRules, revocations, send } = open();
    const alice = createUser();
    const [first, second, revoked] = [alice.sign(ASK), alice.sign(BLOCK), alice.sign([])];
    revocations.add(revoked.cid, 4_000_000_000);
    await userRules.put(alice.caller, first.token);
    await userRules.put(alice.caller, second.token);
    send.mockClear();
    await expect(userRules.put(alice.caller, first.token)).rejects.toMatchObject({
      code: 'rules_replaced',
    });
    await expect(userRules.put(alice.caller, revoked.token)).rejects.toMatchObject({
      code: 'invalid_rules',
      message: expect.stringContaining('revoked'),
    });
    expect((await userRules.get(alice.did)).rules).toEqual(BLOCK);
    expect(send).not.toHaveBeenCalled();
  });

  it('delete removes the rules of the caller only', async () => {
    const { userRules } = open();
    const [alice, bob] = [createUser(), createUser()];
    for (const user of [alice, bob]) await userRules.put(user.caller, user.sign(ASK).token);
    await userRules.delete(alice.caller);
    expect(await userRules.get(alice.did)).toEqual({ rules: [] });
    expect((await userRules.get(bob.did)).rules).toEqual(ASK);
  });

  it('sends all other hosts the rules that have changed, and nothing if none have', async () => {
    const { userRules, send } = open();
    const alice = createUser();
    await userRules.delete(alice.caller);
    expect(send).not.toHaveBeenCalled();
    const { token, cid } = alice.sign(ASK);
    await userRules.put(alice.caller, token);
    await userRules.delete(alice.caller);
    const toMessage = (key: string) => ['others', 'rules-changed', { key }];
    expect(send.mock.calls).toEqual([`${alice.did} `, `${alice.did} ${cid}`].map(toMessage));
  });

  /** Does not poll: that would advance fake timers, and so start the check of the store. */
  const waitForChange = (live: LiveRules) =>
    new Promise<void>((resolve) => {
      const stop = live.onChange(() => {
        stop();
        resolve();
      });
    });

  it('open returns rules that follow those of the user, from none to none', async () => {
    // Without the check of the store that finds changes that were not reported.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { userRules } = open();
    const [alice, bob] = [createUser(), createUser()];
    const live = await userRules.open(alice.did);
    const follow = async (change: () => Promise<unknown>) => {
      const changed = waitForChange(live);
      await change();
      await changed;
      return findEffect(live.rules, TOOL);
    };
    expect(findEffect(live.rules, TOOL)).toBe('allow');
    await userRules.put(bob.caller, bob.sign(BLOCK).token);
    expect(await follow(() => userRules.put(alice.caller, alice.sign(ASK).token))).toBe('ask');
    expect(await follow(() => userRules.put(alice.caller, alice.sign(BLOCK).token))).toBe('block');
    expect(await follow(() => userRules.delete(alice.caller))).toBe('allow');
    live.close();
  });

  it.each<[string, (bus: MemoryHostBus, key: string) => void]>([
    ['reports', (bus, key) => void bus.send('own', 'rules-changed', { key })],
    ['does not report', () => void vi.advanceTimersByTime(3_000)],
  ])('open returns rules that follow a change that another host %s', async (_, act) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const [own, other] = [open(), open()];
    const [alice, bob] = [createUser(), createUser()];
    const first = alice.sign(ASK);
    for (const [user, token] of [
      [alice, first.token] as const,
      [bob, bob.sign(ASK).token] as const,
    ])
      await own.userRules.put(user.caller, token);
    const find = vi.spyOn(own.store, 'find');
    const live = await own.userRules.open(alice.did);
    const unchanged = await own.userRules.open(bob.did);
    const { did: stranger } = createUser();
    const none = await own.userRules.open(stranger);
    await other.userRules.put(alice.caller, alice.sign(BLOCK).token);
    expect(findEffect(live.rules, TOOL)).toBe('ask');
    const changed = waitForChange(live);
    act(own.bus, `${alice.did} ${first.cid}`);
    await changed;
    expect(findEffect(live.rules, TOOL)).toBe('block');
    // Only the changed rules are read again.
    expect(find.mock.calls.map(([owner]) => owner)).toEqual([
      alice.did,
      bob.did,
      stranger,
      alice.did,
    ]);
    for (const each of [live, unchanged, none]) each.close();
    find.mockRestore();
  });
});
