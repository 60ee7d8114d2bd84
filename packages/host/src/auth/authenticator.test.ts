import type { IncomingHttpHeaders } from 'node:http';
import { OracleError } from '@sibyl/protocol';
import {
  type Capability,
  createDidKeyResolver,
  createVerifier,
  generateSigner,
  mintAuthInvocation,
  mintDelegation,
  readToken,
  type Signer,
  systemClock,
  type UcanErrorCode,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { MemoryHostBus } from '../bus/host-bus.js';
import { Metrics } from '../observability/metrics.js';
import {
  Authenticator,
  type Credentials,
  PresentedDelegations,
  proveCaller,
  readAccessKey,
  readCredentials,
  toTemporaryError,
} from './authenticator.js';
import { Holders, RateLimits } from './rate-limits.js';

const oracle = generateSigner();
const day = 86_400;
const KEY = 'a valid access key';
const verifiedKey = {
  did: 'did:key:zOwner',
  cid: 'cid of the key',
  cids: ['cid of the key'],
  issuers: ['did:key:zOwner'],
  audience: oracle.did,
  expiration: systemClock() + day,
  capabilities: [],
  token: KEY,
  caveats: { turnsPerDay: 3 },
};

function mintLogin(signer: Signer = generateSigner(), ttlSeconds = 300) {
  const { ok, error } = mintAuthInvocation({ signer, audience: oracle.did, ttlSeconds });
  if (error) throw new Error(error.detail);
  return ok;
}

interface Link {
  readonly audience?: string;
  readonly capabilities?: readonly Capability[];
  readonly proofs?: readonly string[];
  readonly ttlSeconds?: number;
}

function delegate(signer: Signer, { ttlSeconds = day, ...fields }: Link = {}) {
  const { ok, error } = mintDelegation({
    signer,
    audience: oracle.did,
    capabilities: [{ can: 'store/add', with: 'did:key:zSpace' }],
    expiration: systemClock() + ttlSeconds,
    ...fields,
  });
  if (error) throw new Error(error.detail);
  return ok;
}

/** Such as other services receive. */
function mintCall(): string {
  const capabilities = [{ can: 'mcp/call', with: oracle.did }];
  return delegate(generateSigner(), { capabilities }).token;
}

/** A delegation that costs 5 to verify: 4 signatures, and more than 1024 characters. */
function delegateByChain() {
  let signer = generateSigner();
  let proofs: string[] = [];
  for (let link = 1; link < 4; link++) {
    const next = generateSigner();
    proofs = [delegate(signer, { audience: next.did, proofs }).token];
    signer = next;
  }
  return { did: signer.did, ...delegate(signer, { proofs }) };
}

describe('authentication', () => {
  const test = useStore('sqlite');
  // Limits are not refilled.
  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
  afterEach(() => void vi.useRealTimers());

  function open({ allowDelegationLogin = true, loginMaxDays = 30 } = {}) {
    const revoked = new Set<string>();
    const state = { isAway: false };
    const metrics = new Metrics();
    const log: string[] = [];
    const logger = pino({}, { write: (line: string) => void log.push(line) });
    const { delegations, disk } = test.store;
    const authenticator = new Authenticator({
      verifier: createVerifier({
        audience: oracle.did,
        resolver: createDidKeyResolver(),
        revocations: {
          isRevoked: async (cid) => {
            if (state.isAway) throw new Error('the store is away');
            return revoked.has(cid);
          },
        },
      }),
      logger,
      metrics,
      allowDelegationLogin,
      presented: new PresentedDelegations({
        oracleDid: oracle.did,
        delegations,
        disk,
        logger,
        loginMaxDays,
      }),
      accessKeys: {
        verify: async (token) =>
          token === KEY
            ? { ok: verifiedKey }
            : { error: { code: 'wrong_purpose', detail: 'not registered' } },
      },
    });
    const count = async (means: string, outcome: string) => {
      const line = `^sibyl_auth_total\\{means="${means}",outcome="${outcome}"\\} (\\d+)$`;
      return Number((await metrics.print()).match(new RegExp(line, 'm'))?.[1] ?? 0);
    };
    return { authenticator, revoked, state, metrics, log, count };
  }

  const login = (credentials: Credentials, options: Parameters<typeof open>[0] = {}) =>
    open(options).authenticator.authenticate(credentials, {});

  /** The code of the error. */
  const refusal = async (attempt: Promise<unknown>): Promise<string> => {
    const error = await attempt.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    return error instanceof OracleError ? error.code : `not refused: ${error}`;
  };

  describe('Authenticator', () => {
    it('by an invocation the caller is its issuer until it expires; a delegation beside it is not a login', async () => {
      const user = generateSigner();
      const { token: invocation, expiration } = mintLogin(user);
      const { authenticator, count } = open();
      const credentials = { invocation, delegation: 'not verified yet', accessKey: KEY };
      expect(await authenticator.authenticate(credentials, {})).toEqual({
        did: user.did,
        expiration,
        presentedDelegation: 'not verified yet',
      });
      expect(await count('invocation', 'proven')).toBe(1);
      expect(await count('access_key', 'proven')).toBe(0);
    });

    it('by an access key the caller is limited to it, and depends on it', async () => {
      const { authenticator, count } = open();
      const credentials = { delegation: 'not verified yet', accessKey: KEY };
      expect(await authenticator.authenticate(credentials, {})).toEqual({
        did: verifiedKey.did,
        expiration: verifiedKey.expiration,
        loginCids: verifiedKey.cids,
        accessKey: { cid: verifiedKey.cid, caveats: { turnsPerDay: 3 } },
        presentedDelegation: 'not verified yet',
      });
      expect(await count('access_key', 'proven')).toBe(1);
    });

    it('by a delegation the caller is its issuer, and depends on all links of the chain', async () => {
      const first = generateSigner();
      const second = generateSigner();
      const proof = delegate(first, { audience: second.did });
      const { token, cid } = delegate(second, { proofs: [proof.token] });
      const { authenticator, count } = open();
      const caller = await authenticator.authenticate({ delegation: token }, {});
      expect(caller).toEqual({
        did: second.did,
        expiration: expect.any(Number),
        login: expect.objectContaining({ did: second.did, cid, token }),
        loginCids: expect.arrayContaining([cid, proof.cid]),
        presentedDelegation: token,
      });
      expect(await count('delegation', 'proven')).toBe(1);
    });

    it.each<[string, () => Credentials, string]>([
      ['invocation', () => ({ invocation: 'garbage' }), 'invalid_invocation'],
      ['invocation', () => ({ invocation: '' }), 'invalid_invocation'],
      ['invocation', () => ({ invocation: mintLogin(undefined, -1).token }), 'invalid_invocation'],
      ['access_key', () => ({ accessKey: 'garbage' }), 'invalid_access_key'],
      ['access_key', () => ({ accessKey: '' }), 'invalid_access_key'],
    ])('an invalid %s is final, also beside a valid one', async (means, create, code) => {
      const { authenticator, count } = open();
      const others = { delegation: delegate(generateSigner()).token };
      const credentials = { ...others, ...(means === 'invocation' && { accessKey: KEY }) };
      const attempt = authenticator.authenticate({ ...credentials, ...create() }, {});
      expect(await refusal(attempt)).toBe(code);
      expect(await count(means, 'refused')).toBe(1);
      expect(await count('delegation', 'proven')).toBe(0);
    });

    it.each<[string, () => Credentials]>([
      ['nothing', () => ({})],
      ['an empty delegation', () => ({ delegation: '' })],
      ['a call as a delegation', () => ({ delegation: mintCall() })],
      ['an expired delegation', () => expired()],
      ['a delegation of the oracle itself', () => ({ delegation: delegate(oracle).token })],
      [
        'a delegation that lasts longer than a login may',
        () => ({ delegation: delegate(generateSigner(), { ttlSeconds: 31 * day }).token }),
      ],
    ])('%s is a missing authentication', async (_, create) => {
      expect(await refusal(login(create()))).toBe('missing_authentication');
    });
    const expired = () => ({ delegation: delegate(generateSigner(), { ttlSeconds: -1 }).token });

    it('a request without credentials counts as no attempt', async () => {
      const { authenticator, metrics } = open();
      expect(await refusal(authenticator.authenticate({}, {}))).toBe('missing_authentication');
      expect(await metrics.print()).not.toContain('sibyl_auth_total{');
    });

    it('a refused delegation counts as refused, also one that is valid but may not log in', async () => {
      const { authenticator, count } = open();
      await refusal(authenticator.authenticate({ delegation: 'garbage' }, {}));
      await refusal(authenticator.authenticate({ delegation: delegate(oracle).token }, {}));
      expect(await count('delegation', 'refused')).toBe(2);
      expect(await count('delegation', 'proven')).toBe(0);
    });

    it('no delegation is a login where that is turned off, but an invocation still is', async () => {
      const user = generateSigner();
      const delegation = delegate(user).token;
      const off = { allowDelegationLogin: false };
      expect(await refusal(login({ delegation }, off))).toBe('missing_authentication');
      const caller = await login({ delegation, invocation: mintLogin(user).token }, off);
      expect(caller).toMatchObject({ did: user.did, presentedDelegation: delegation });
    });

    it('why a token was refused is logged with its issuer, but neither sent nor is the token logged', async () => {
      const { authenticator, revoked, log } = open();
      const user = generateSigner();
      const { token, cid } = mintLogin(user);
      revoked.add(cid);
      const error = await authenticator
        .authenticate({ invocation: token }, {})
        .catch((reason: unknown) => reason);
      expect(error).toEqual(new OracleError('invalid_invocation'));
      expect(error).not.toHaveProperty('cause');
      expect(log.map((line) => JSON.parse(line))).toEqual([
        expect.objectContaining({
          reason: 'revoked',
          detail: expect.any(String),
          cid,
          did: user.did,
        }),
      ]);
      expect(log.join()).not.toContain(token);
    });

    it('a token that could not be checked is neither refused for good nor logged as that', async () => {
      const { authenticator, state, log } = open();
      const { token: invocation } = mintLogin();
      state.isAway = true;
      const attempt = authenticator.authenticate({ invocation }, {});
      await expect(attempt).rejects.toMatchObject({ code: 'store_unavailable', status: 503 });
      expect(log).toEqual([]);
      state.isAway = false;
      await authenticator.authenticate({ invocation }, {});
    });

    it.each<[UcanErrorCode, string, number]>([
      ['revocations_unavailable', 'store_unavailable', 5],
      ['replay_store_unavailable', 'store_unavailable', 5],
      ['did_busy', 'verification_busy', 3],
      ['verifier_busy', 'verification_busy', 3],
      ['cost_refused', 'rate_limited', 3],
    ])('%s is temporary: %s, retry after %d s', (code, expected, retryAfterSeconds) => {
      const error = toTemporaryError({ code, detail: 'why' });
      expect(error).toMatchObject({ code: expected, retryAfterSeconds, cause: 'why' });
    });

    it.each<UcanErrorCode>(['revoked', 'expired', 'signature_invalid', 'did_not_found'])(
      '%s is not temporary',
      (code) => expect(toTemporaryError({ code, detail: 'why' })).toBeUndefined(),
    );
  });

  describe('proveCaller', () => {
    const address = '192.0.2.1';

    function openLimited({ perCaller = 10, anonymous = 10 } = {}) {
      const opened = open();
      const { authenticator, metrics } = opened;
      const bus = new MemoryHostBus('own', pino({ level: 'silent' }));
      const holders = new Holders({ hasFinishedTurn: async () => false, now: Date.now });
      const limits = new RateLimits({ perCaller, anonymous, metrics, holders, bus });
      const headers = new Map<string, number>();
      const sink = { setHeader: (name: string, value: number) => headers.set(name, value) };
      const prove = (credentials: Credentials, isCounted?: boolean) =>
        proveCaller({ authenticator, limits }, { credentials, address, headers: sink, isCounted });
      /** What the address has left for requests without a valid login; uses it up. */
      const countLeft = () => {
        for (let left = 0; ; left++)
          try {
            limits.takeAnonymous(address);
          } catch {
            return left;
          }
      };
      return { ...opened, limits, headers, prove, countLeft };
    }

    it('counts a valid caller for itself, and takes nothing from the address', async () => {
      const user = generateSigner();
      const { prove, headers, countLeft } = openLimited({ perCaller: 7 });
      const caller = await prove({ invocation: mintLogin(user).token });
      expect(caller).toMatchObject({ did: user.did, charge: expect.any(Function) });
      expect(headers.get('RateLimit-Limit')).toBe(7);
      expect(headers.get('RateLimit-Remaining')).toBe(6);
      expect(countLeft()).toBe(10);
    });

    it('a caller beyond its limit is refused with a valid token', async () => {
      const { prove } = openLimited({ perCaller: 2 });
      const credentials = { invocation: mintLogin().token };
      await prove(credentials);
      await prove(credentials);
      expect(await refusal(prove(credentials))).toBe('rate_limited');
      await prove({ invocation: mintLogin().token });
    });

    it('the charge of a caller takes further work from its own limit', async () => {
      const { prove } = openLimited();
      const credentials = { invocation: mintLogin().token };
      const { charge } = await prove(credentials);
      charge?.({ signatures: 9, lookups: 0, characters: 0 })?.(true);
      await prove(credentials);
      expect(await refusal(prove(credentials))).toBe('rate_limited');
    });

    it.each<[string, () => Credentials, string]>([
      ['no credentials', () => ({}), 'missing_authentication'],
      ['an invalid token', () => ({ invocation: 'garbage' }), 'invalid_invocation'],
    ])('%s: takes one from the address, and beyond its limit is a 429', async (_, create, code) => {
      const { prove, countLeft, headers } = openLimited();
      expect(await refusal(prove(create()))).toBe(code);
      expect(headers.get('RateLimit-Remaining')).toBe(9);
      expect(countLeft()).toBe(9);
      expect(await refusal(prove(create()))).toBe('rate_limited');
      await prove({ invocation: mintLogin().token });
    });

    it.each<[string, (revoke: (cid: string) => void) => Credentials]>([
      ['that cannot be read', () => ({ invocation: 'garbage' })],
      [
        'that is revoked',
        (revoke) => {
          const { token, cid } = mintLogin();
          revoke(cid);
          return { invocation: token };
        },
      ],
    ])('a token %s takes nothing more for a request that was counted before', async (_, create) => {
      const counted = openLimited();
      const credentials = create((cid) => counted.revoked.add(cid));
      expect(await refusal(counted.prove(credentials, true))).toBe('invalid_invocation');
      expect(counted.countLeft()).toBe(10);
      const uncounted = openLimited();
      const other = create((cid) => uncounted.revoked.add(cid));
      expect(await refusal(uncounted.prove(other))).toBe('invalid_invocation');
      expect(uncounted.countLeft()).toBe(9);
    });

    it('an expensive valid token costs its caller as much, once, and its address nothing', async () => {
      const { prove, headers, countLeft } = openLimited();
      const { token: delegation, did } = delegateByChain();
      expect(await prove({ delegation })).toMatchObject({ did });
      expect(headers.get('RateLimit-Remaining')).toBe(5);
      // It is known now.
      await prove({ delegation });
      expect(headers.get('RateLimit-Remaining')).toBe(4);
      expect(countLeft()).toBe(10);
    });

    it('an expensive invalid token costs its address as much, and no more', async () => {
      const { prove, revoked, countLeft } = openLimited();
      const { token: delegation, cid } = delegateByChain();
      revoked.add(cid);
      expect(await refusal(prove({ delegation }))).toBe('missing_authentication');
      expect(countLeft()).toBe(5);
    });

    it('a token that its address cannot pay for is a 429 that says when to retry, and takes nothing', async () => {
      const { prove, limits, headers, countLeft } = openLimited();
      for (let i = 0; i < 7; i++) limits.takeAnonymous(address);
      const { token: delegation } = delegateByChain();
      // One unit returns every 6 s, and two are missing.
      await expect(prove({ delegation })).rejects.toMatchObject({
        code: 'rate_limited',
        retryAfterSeconds: 12,
      });
      expect(headers.get('RateLimit-Limit')).toBe(10);
      expect(countLeft()).toBe(3);
    });

    it('a text that its address cannot pay for is not read at all', async () => {
      const { prove, limits, countLeft, count } = openLimited();
      for (let i = 0; i < 5; i++) limits.takeAnonymous(address);
      const invocation = 'A'.repeat(8 * 1024);
      expect(readToken(invocation).error).toBeDefined();
      expect(await refusal(prove({ invocation }))).toBe('rate_limited');
      expect(await count('invocation', 'refused')).toBe(1);
      expect(countLeft()).toBe(5);
    });
  });
});

const ucan = { 'x-auth-type': 'ucan' };
const delegation = { 'x-ucan-delegation': 'D' };

describe('readCredentials', () => {
  it('finds nothing in a request without credentials', () => {
    expect(readCredentials({})).toEqual({ invocation: undefined, delegation: undefined });
  });

  it('reads the bearer token and the delegation beside it', () => {
    const headers = { ...ucan, ...delegation, authorization: 'Bearer I' };
    expect(readCredentials(headers)).toEqual({ invocation: 'I', delegation: 'D' });
  });

  it.each<[string, string | string[]]>([
    ['as it is documented', 'ucan'],
    ['in capital letters', 'UCAN'],
    ['with spaces', ' ucan '],
    ['among others', 'jwt, ucan'],
    ['first of others', 'ucan,jwt'],
    ['in a repeated header', ['jwt', 'ucan']],
  ])('the bearer token counts with X-Auth-Type %s', (_, type) => {
    const headers = { 'x-auth-type': type, authorization: 'Bearer I' };
    expect(readCredentials(headers).invocation).toBe('I');
  });

  it.each<[string, string | undefined]>([
    ['no X-Auth-Type', undefined],
    ['an empty one', ''],
    ['another one', 'jwt'],
    ['one that only contains the word', 'ucan2'],
    ['two words', 'not ucan'],
  ])('the bearer token does not count with %s, the delegation does', (_, type) => {
    const authorization = 'Bearer I';
    const headers = { ...delegation, authorization, 'x-auth-type': type };
    expect(readCredentials(headers)).toEqual({ invocation: undefined, delegation: 'D' });
  });

  it.each([
    ['bearer I', 'I'],
    ['BEARER I', 'I'],
    ['Bearer    I', 'I'],
    ['  Bearer I  ', 'I'],
    ['Bearer I J', 'I J'],
  ])('%j has the bearer token %j', (authorization, token) => {
    expect(readCredentials({ ...ucan, authorization }).invocation).toBe(token);
  });

  it.each([undefined, '', '  '])('Authorization %j is a missing invocation', (authorization) => {
    expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
    expect(readCredentials({ ...ucan, ...delegation, authorization })).toEqual({
      invocation: undefined,
      delegation: 'D',
    });
  });

  it.each(['Bearer', 'bearer', ' Bearer '])(
    '%j is a missing invocation, but an invalid one beside a delegation',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
      expect(readCredentials({ ...ucan, ...delegation, authorization }).invocation).toBe('');
    },
  );

  it.each(['Bearer\tI', 'Bearer,I', 'Basic eDp5, Bearer I', 'Basic eDp5,bearer'])(
    '%j is an invalid invocation, also beside a delegation',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBe('');
      expect(readCredentials({ ...ucan, ...delegation, authorization }).invocation).toBe('');
    },
  );

  it.each(['Basic eDp5', 'DPoP eDp5', 'Bearers I', 'Forbearer I', 'I'])(
    '%j is a missing invocation: it may be for a proxy',
    (authorization) => {
      expect(readCredentials({ ...ucan, authorization }).invocation).toBeUndefined();
      const blank = { 'x-ucan-delegation': ' ' };
      expect(readCredentials({ ...ucan, ...blank, authorization }).invocation).toBeUndefined();
      expect(readCredentials({ ...ucan, ...delegation, authorization })).toEqual({
        invocation: undefined,
        delegation: 'D',
      });
    },
  );

  it.each<[string, IncomingHttpHeaders, string | undefined]>([
    ['with spaces around it', { 'x-ucan-delegation': ' D ' }, 'D'],
    ['that is empty', { 'x-ucan-delegation': '' }, undefined],
    ['of spaces', { 'x-ucan-delegation': '  ' }, undefined],
    ['that is repeated', { 'x-ucan-delegation': ['D', 'E'] }, undefined],
  ])('reads a delegation %s', (_, headers, expected) => {
    expect(readCredentials(headers).delegation).toBe(expected);
  });

  it('never reads an access key', () => {
    expect(readCredentials({ 'x-api-key': 'K' })).toEqual({
      invocation: undefined,
      delegation: undefined,
    });
  });
});

describe('readAccessKey', () => {
  it.each<[string, IncomingHttpHeaders, string | undefined]>([
    ['X-Api-Key', { 'x-api-key': ' K ' }, 'K'],
    ['a bearer token', { authorization: 'Bearer K' }, 'K'],
    ['X-Api-Key rather than a bearer token', { 'x-api-key': 'K', authorization: 'Bearer L' }, 'K'],
    [
      'a bearer token beside an empty X-Api-Key',
      { 'x-api-key': ' ', authorization: 'Bearer L' },
      'L',
    ],
    ['nothing in a request without credentials', {}, undefined],
    ['nothing in an empty bearer token', { authorization: 'Bearer' }, undefined],
    ['nothing in another scheme', { authorization: 'Basic eDp5' }, undefined],
    ['nothing in a delegation', { 'x-ucan-delegation': 'D' }, undefined],
  ])('finds %s', (_, headers, expected) => {
    expect(readAccessKey(headers)).toBe(expected);
  });

  it.each(['ucan', 'jwt', ''])('finds nothing with X-Auth-Type %j', (type) => {
    const headers = { 'x-auth-type': type };
    expect(readAccessKey({ ...headers, authorization: 'Bearer K' })).toBeUndefined();
    expect(readAccessKey({ ...headers, 'x-api-key': 'K' })).toBeUndefined();
  });
});
