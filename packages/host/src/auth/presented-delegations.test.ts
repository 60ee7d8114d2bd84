import { tmpdir } from 'node:os';
import { generateSigner, type VerifiedDelegation } from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { DiskSpace } from '../store/disk-space.js';
import { PresentedDelegations } from './authenticator.js';

const oracleDid = generateSigner().did;
const HOUR_MS = 3_600_000;
const DAY_SECONDS = 86_400;

const createDelegation = (fields: Partial<VerifiedDelegation> = {}): VerifiedDelegation => {
  const { did = newOwner(), cid = 'one' } = fields;
  return {
    audience: oracleDid,
    issuers: [did],
    cids: [cid],
    expiration: 4_000_000_000,
    capabilities: [{ can: 'store/*', with: did }],
    token: 'token',
    ...fields,
    did,
    cid,
  };
};

describe('PresentedDelegations', () => {
  const test = useStore('sqlite');
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  interface Choice {
    readonly disk?: DiskSpace;
    readonly loginMaxDays?: number;
    readonly log?: (line: string) => void;
  }

  const open = ({ disk, loginMaxDays, log = () => {} }: Choice = {}) =>
    new PresentedDelegations({
      oracleDid,
      delegations: test.store.delegations,
      disk,
      logger: pino({ level: 'info' }, { write: log }),
      loginMaxDays,
    });

  const spyOnWrites = () => vi.spyOn(test.store.delegations, 'recordUse');

  it('checkLogin lets the delegations of users log in, not those of the oracle', () => {
    const forever = { expiration: Number.POSITIVE_INFINITY };
    expect(open().checkLogin(createDelegation(forever))).toBeUndefined();
    expect(open().checkLogin(createDelegation({ did: oracleDid, cid: 'own' }))).toEqual({
      code: 'wrong_issuer',
      detail: expect.any(String),
      cid: 'own',
      issuer: oracleDid,
    });
  });

  it('checkLogin refuses a delegation that expires after the longest allowed time', () => {
    vi.useFakeTimers({ now: 1_000_000, toFake: ['Date'] });
    const presented = open({ loginMaxDays: 30 });
    const check = (expiration: number) =>
      presented.checkLogin(createDelegation({ did: 'did:key:zAlice', expiration }));
    const latest = 1_000 + 30 * DAY_SECONDS;
    expect(check(latest)).toBeUndefined();
    expect(check(latest + 1)).toMatchObject({
      code: 'expiry_too_far',
      detail: expect.stringContaining('DELEGATION_LOGIN_MAX_DAYS=30'),
      cid: 'one',
      issuer: 'did:key:zAlice',
    });
    expect(check(Number.POSITIVE_INFINITY)).toMatchObject({ code: 'expiry_too_far' });
  });

  it('record lets the issuer list a delegation that was only presented', async () => {
    const did = newOwner();
    const capabilities = [{ can: 'store/add', with: did }];
    const forever = { did, cid: 'forever', expiration: Number.POSITIVE_INFINITY, capabilities };
    const presented = open();
    await presented.record(createDelegation({ did, cid: 'short', expiration: 4_000_000_000 }));
    await presented.record(createDelegation(forever));
    expect(await test.store.delegations.list(did)).toMatchObject([
      { owner: did, cid: 'forever', audience: oracleDid, expiresAt: null, capabilities },
      { owner: did, cid: 'short', audience: oracleDid, expiresAt: 4_000_000_000 },
    ]);
  });

  it('record writes once an hour for each delegation', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const written = spyOnWrites();
    const presented = open();
    const [one, two] = [createDelegation(), createDelegation({ cid: 'two' })];
    await presented.record(one);
    vi.advanceTimersByTime(HOUR_MS - 1);
    await presented.record(one);
    await presented.record(two);
    expect(written.mock.calls.map(([{ cid }]) => cid)).toEqual(['one', 'two']);
    vi.advanceTimersByTime(1);
    await presented.record(two);
    await presented.record(one);
    expect(written.mock.calls.map(([{ cid }]) => cid)).toEqual(['one', 'two', 'one']);
  });

  it('record writes nothing while disk space is low', async () => {
    const written = spyOnWrites();
    const delegation = createDelegation();
    await open({ disk: new DiskSpace(tmpdir(), Number.MAX_SAFE_INTEGER) }).record(delegation);
    expect(written).not.toHaveBeenCalled();
    await open({ disk: new DiskSpace(tmpdir(), 1) }).record(delegation);
    expect(written).toHaveBeenCalledTimes(1);
  });

  it('record does not fail while the store accepts no writes, and tries again at the next use', async () => {
    const lines: unknown[] = [];
    const written = spyOnWrites().mockRejectedValueOnce(new Error('database is locked'));
    const presented = open({ log: (line) => void lines.push(JSON.parse(line)) });
    const delegation = createDelegation();
    await presented.record(delegation);
    const { did, cid } = delegation;
    expect(lines).toMatchObject([{ did, cid, err: { message: 'database is locked' } }]);
    await presented.record(delegation);
    await presented.record(delegation);
    expect(written).toHaveBeenCalledTimes(2);
    expect(await test.store.delegations.list(did)).toMatchObject([{ cid }]);
  });

  it('record writes a delegation again that the store has dropped for others', async () => {
    const written = spyOnWrites();
    const presented = open();
    const use = (cid: string) => presented.record(createDelegation({ cid }));
    await use('one');
    await use('two');
    await use('three');
    presented.forget(['one']);
    written.mockResolvedValueOnce(['two']);
    await use('four');
    written.mockClear();
    for (const cid of ['one', 'two', 'three', 'four']) await use(cid);
    expect(written.mock.calls.map(([{ cid }]) => cid)).toEqual(['one', 'two']);
  });

  it('record remembers a limited number of delegations', async () => {
    const written = spyOnWrites().mockResolvedValue([]);
    const presented = open();
    const use = (n: number) => presented.record(createDelegation({ cid: `${n}`.padEnd(10_000) }));
    for (let n = 0; n < 300; n++) await use(n);
    await use(299);
    expect(written).toHaveBeenCalledTimes(300);
    await use(0);
    expect(written).toHaveBeenCalledTimes(301);
  });
});
