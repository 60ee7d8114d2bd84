import { systemClock } from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import type { Caller } from './caller.js';
import { Operators, OutageRevocations } from './operators.js';

const logger = pino({ level: 'silent' });
const listed = 'did:key:zListed';

beforeEach(() => {
  vi.useFakeTimers({
    toFake: ['performance', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'],
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe('Operators', () => {
  const test = useStore('sqlite');

  function open() {
    const blocked = new Set<string>();
    const operators = new Operators({
      listed: [listed],
      stored: test.store.operators,
      allowList: { isKnownBlocked: async (did) => blocked.has(did) },
      logger,
    });
    const check = (did: string, login: Partial<Caller> = {}) =>
      operators.assertOperator({
        did,
        expiration: systemClock() + 300,
        presentedDelegation: undefined,
        ...login,
      });
    return { operators, blocked, check };
  }

  async function addOperator(): Promise<string> {
    const did = newOwner();
    await test.store.operators.add(did);
    return did;
  }

  it('operators are those that are listed or were added, and only those', async () => {
    const { check } = open();
    const added = await addOperator();
    await check(listed);
    await check(added);
    await expect(check(newOwner())).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('an operator who presents a delegation beside an invocation is still one', async () => {
    await open().check(listed, { presentedDelegation: 'a delegation' });
  });

  it.each<[string, Partial<Caller>]>([
    [
      'a delegation',
      {
        login: {
          did: listed,
          cid: 'cid',
          cids: ['cid'],
          issuers: [listed],
          audience: 'did:key:zOracle',
          expiration: Number.POSITIVE_INFINITY,
          capabilities: [],
          token: 'token',
        },
      },
    ],
    ['an access key', { accessKey: { cid: 'cid', caveats: {} } }],
  ])('an operator who logs in with %s is refused, since others may have it', async (_, login) => {
    const { check } = open();
    await expect(check(listed, login)).rejects.toMatchObject({ code: 'forbidden' });
    await expect(check(await addOperator(), login)).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('an operator who is blocked learns that; others learn nothing', async () => {
    const { check, blocked } = open();
    const added = await addOperator();
    const stranger = newOwner();
    for (const did of [listed, added, stranger]) blocked.add(did);
    await expect(check(listed)).rejects.toMatchObject({ code: 'caller_blocked' });
    await expect(check(added)).rejects.toMatchObject({ code: 'caller_blocked' });
    await expect(check(stranger)).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('who is added or removed by another process is one or is not after at most 3 s', async () => {
    const { check } = open();
    const removed = await addOperator();
    await check(removed);
    const added = await addOperator();
    await test.store.operators.remove(removed);
    await vi.advanceTimersByTimeAsync(3_000);
    await check(added);
    await expect(check(removed)).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('start reads the list without requests, so that operators are known while the store is away', async () => {
    const { operators, check } = open();
    const added = await addOperator();
    const read = vi.spyOn(test.store.operators, 'list');
    void operators.start();
    await expect.poll(() => read.mock.settledResults.at(-1)?.type).toBe('fulfilled');
    read.mockRejectedValue(new Error('away'));
    await vi.advanceTimersByTimeAsync(60_000);
    await check(added);
    await check(listed);
    await expect(check(newOwner())).rejects.toMatchObject({ code: 'forbidden' });
    operators.close();
    const reads = read.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(read).toHaveBeenCalledTimes(reads);
  });
});

describe('OutageRevocations', () => {
  const test = useStore('sqlite');

  const operator = newOwner();

  /** Logins last 900 s at most. */
  function open() {
    const { revocations: stored, operators: added } = test.store;
    const known = { stored, added, listed: [operator] };
    const revocations = new OutageRevocations({ ...known, maxTtlSeconds: 900, logger });
    const asked = vi.spyOn(stored, 'has');
    const read = vi.spyOn(stored, 'listExpiring');
    const start = async () => {
      void revocations.start();
      await expect.poll(() => read.mock.settledResults.at(-1)?.type).toBe('fulfilled');
      // Until the list is kept.
      await new Promise(setImmediate);
    };
    return { revocations, asked, read, start };
  }

  async function revoke(secondsLeft: number, owner = operator): Promise<string> {
    const cid = newOwner();
    const expiresAt = systemClock() + secondsLeft;
    await test.store.revocations.add({ owner, cid, expiresAt });
    return cid;
  }

  it('answers by the store while that answers, also about what was revoked a moment ago', async () => {
    const { revocations, start } = open();
    await start();
    expect(await revocations.isRevoked(await revoke(60))).toBe(true);
    expect(await revocations.isRevoked(newOwner())).toBe(false);
    revocations.close();
  });

  it('knows during an outage what could still log in, with a minute for clocks that differ', async () => {
    const soon = await revoke(60);
    const longest = await revoke(900 + 50);
    const noLogin = await revoke(900 + 120);
    const { revocations, asked, read, start } = open();
    await start();
    for (const spy of [asked, read]) spy.mockRejectedValue(new Error('away'));
    expect(await revocations.isRevoked(soon)).toBe(true);
    expect(await revocations.isRevoked(longest)).toBe(true);
    expect(await revocations.isRevoked(noLogin)).toBe(false);
    revocations.close();
  });

  it('the store is asked again 2 s after it failed, not before', async () => {
    const { revocations, asked, start } = open();
    await start();
    asked.mockRejectedValueOnce(new Error('away'));
    expect(await revocations.isRevoked('a')).toBe(false);
    await vi.advanceTimersByTimeAsync(1_999);
    const late = await revoke(60);
    expect(await revocations.isRevoked(late)).toBe(false);
    expect(asked).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(await revocations.isRevoked(late)).toBe(true);
    expect(asked).toHaveBeenCalledTimes(2);
    revocations.close();
  });

  it('a store that does not answer within a second is away', async () => {
    const revoked = await revoke(60);
    const { revocations, asked, start } = open();
    await start();
    asked.mockReturnValue(new Promise(() => {}));
    const onAnswer = vi.fn();
    void revocations.isRevoked(revoked).then(onAnswer);
    await vi.advanceTimersByTimeAsync(999);
    expect(onAnswer).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(onAnswer).toHaveBeenCalledWith(true);
    revocations.close();
  });

  it.each([
    ['keeps a list of 10 000 revoked tokens', 10_000, true],
    ['keeps no list of more, and then asks the store each time', 10_001, false],
  ])('%s', async (_, count, isKept) => {
    const { revocations, asked, read, start } = open();
    const expiresAt = systemClock() + 60;
    const found = Array.from({ length: count }, (_item, i) => ({ cid: `cid ${i}`, expiresAt }));
    read.mockImplementation(async ({ limit }) => found.slice(0, limit));
    await start();
    asked.mockRejectedValue(new Error('away'));
    for (const cid of ['cid 0', 'cid 9999']) {
      const answer = revocations.isRevoked(cid);
      if (isKept) expect(await answer).toBe(true);
      else await expect(answer).rejects.toThrow('away');
    }
    expect(asked).toHaveBeenCalledTimes(isKept ? 1 : 2);
    revocations.close();
  });

  it('what other users revoke is not in the list, so they cannot fill it', async () => {
    const [mine, foreign] = [await revoke(60), await revoke(60, newOwner())];
    const added = newOwner();
    await test.store.operators.add(added);
    const ofAdded = await revoke(60, added);
    const { revocations, asked, read, start } = open();
    await start();
    expect(await revocations.isRevoked(foreign)).toBe(true);
    for (const spy of [asked, read]) spy.mockRejectedValue(new Error('away'));
    expect(await revocations.isRevoked(mine)).toBe(true);
    expect(await revocations.isRevoked(ofAdded)).toBe(true);
    expect(await revocations.isRevoked(foreign)).toBe(false);
    revocations.close();
  });

  it('knows what an operator revoked, also after they have deleted their data', async () => {
    const revoked = await revoke(60);
    const { revocations, asked, read, start } = open();
    await start();
    await test.store.ownerRows.erase(operator, 'erased');
    await vi.advanceTimersByTimeAsync(5_000);
    await expect.poll(() => read.mock.settledResults[1]?.type).toBe('fulfilled');
    await new Promise(setImmediate);
    for (const spy of [asked, read]) spy.mockRejectedValue(new Error('away'));
    expect(await revocations.isRevoked(revoked)).toBe(true);
    revocations.close();
  });

  it('the list is read until close', async () => {
    const { revocations, read, start } = open();
    await start();
    await vi.advanceTimersByTimeAsync(5_000);
    await expect.poll(() => read.mock.calls.length).toBe(2);
    revocations.close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(read).toHaveBeenCalledTimes(2);
  });
});
