import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { Holders, KNOWN_AFTER_MS } from './holders.js';

const owner = 'did:key:zAlice';

describe('Holders.find', () => {
  function open(isKnown = false) {
    const state = { isKnown, lookups: 0 };
    const hasFinishedTurn = async () => {
      state.lookups += 1;
      return state.isKnown;
    };
    return { state, holders: new Holders({ hasFinishedTurn, now: () => 0 }) };
  }

  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
  afterEach(() => void vi.useRealTimers());

  it('asks once for a known user, and every ten minutes for a new one', async () => {
    const { state, holders } = open();
    for (let i = 0; i < 5; i++) expect((await holders.find(owner)).isKnown).toBe(false);
    expect(state.lookups).toBe(1);
    state.isKnown = true;
    vi.advanceTimersByTime(9 * 60_000);
    expect((await holders.find(owner)).isKnown).toBe(false);
    vi.advanceTimersByTime(60_000);
    for (let i = 0; i < 5; i++) expect((await holders.find(owner)).isKnown).toBe(true);
    vi.advanceTimersByTime(86_400_000);
    await holders.find(owner);
    expect(state.lookups).toBe(2);
  });

  it('knows where a user was last, and groups users that were not seen by their method', async () => {
    const { holders } = open();
    expect((await holders.find('did:slack:T1:U1')).address).toBe('did:slack');
    expect((await holders.find(owner)).address).toBe('did:key');
    expect((await holders.find(owner, '192.0.2.1')).address).toBe('192.0.2.1');
    expect((await holders.find(owner)).address).toBe('192.0.2.1');
    expect((await holders.find(owner, '192.0.2.2')).address).toBe('192.0.2.2');
    expect((await holders.find(owner)).address).toBe('192.0.2.2');
  });

  it('gives each known user with an own key an address that was not seen', async () => {
    const { holders } = open(true);
    expect((await holders.find(owner)).address).toBe(owner);
    expect((await holders.find('did:slack:T1:U1')).address).toBe('did:slack');
    await holders.find(owner, '192.0.2.1');
    expect((await holders.find(owner)).address).toBe('192.0.2.1');
  });

  it('counts a user as new while the store fails or does not answer, and asks again', async () => {
    vi.useRealTimers();
    const answers = [Promise.reject(new Error('away')), new Promise<boolean>(() => {})];
    const hasFinishedTurn = () => answers.shift() ?? Promise.resolve(true);
    const holders = new Holders({ hasFinishedTurn, now: () => 0 });
    expect((await holders.find(owner)).isKnown).toBe(false);
    expect((await holders.find(owner)).isKnown).toBe(false);
    expect((await holders.find(owner)).isKnown).toBe(true);
  });
});

describe.each(engines)('UsageStore.hasFinishedTurn on %s', (engine) => {
  const test = useStore(engine);
  const now = Date.UTC(2026, 0, 2, 0, 30);
  const before = now - KNOWN_AFTER_MS;
  const has = (user: string) => test.store.usage.hasFinishedTurn(user, before);

  it.each([
    [true, 'finished', before - 1],
    [false, 'finished', before + 1],
    [false, 'interrupted', before - 1],
    [false, 'running', before - 1],
  ])('is %s for a turn that is %s at %i', async (expected, status, time) => {
    const user = newOwner();
    const hex = time.toString(16).padStart(12, '0');
    const id = `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
    const { imports } = test.store;
    const times = { created_at: time, last_updated_at: time };
    const place = { oracle_did: 'did:o', room_id: 'r', active_branch: 0, last_branch: 0 };
    const session = { id: 's', title: 't', last_turn: 1, ...place };
    await imports.insert(user, 'sessions', [{ owner: user, ...session, ...times, last_seq: 1 }]);
    const run = { id, session_id: 's', turn: 1, branch: 0, request_id: 'r', status, attempt: 1 };
    const tokens = { last_seq: 0, input_tokens: 5, output_tokens: 6, cached_tokens: 0 };
    const changed = { created_at: time, updated_at: time };
    await imports.insert(user, 'runs', [{ owner: user, ...run, ...tokens, ...changed }]);
    expect(await has(user)).toBe(expected);
  });

  it('finds turns of deleted sessions on earlier days', async () => {
    const [alice, bob] = [newOwner(), newOwner()];
    const tokens = { input_tokens: 0, output_tokens: 0, cached_tokens: 0 };
    const ended = { session_id: 's', model: '', turns: 1, ...tokens };
    const { imports } = test.store;
    await imports.insert(alice, 'usage_days', [{ owner: alice, day: '2025-12-31', ...ended }]);
    await imports.insert(bob, 'usage_days', [{ owner: bob, day: '2026-01-01', ...ended }]);
    expect(await has(alice)).toBe(true);
    expect(await has(bob)).toBe(false);
  });
});
