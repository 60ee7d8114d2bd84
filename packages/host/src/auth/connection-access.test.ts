import {
  createDidKeyResolver,
  createVerifier,
  generateSigner,
  mintAuthInvocation,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Metrics } from '../observability/metrics.js';
import { Authenticator } from './authenticator.js';
import { watchAccess } from './connection-access.js';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const authority = { onRevoked: () => () => undefined };
const allowList = { watch: () => () => undefined };

/** Watches a caller with a token that is valid for five minutes; `revoke` revokes it earlier. */
async function watched() {
  const oracle = generateSigner();
  let isRevoked: boolean | Promise<boolean> = false;
  const verifier = createVerifier({
    audience: oracle.did,
    resolver: createDidKeyResolver(),
    revocations: { isRevoked: () => isRevoked },
  });
  const authenticator = new Authenticator({
    verifier,
    logger: pino({ level: 'silent' }),
    metrics: new Metrics(),
    allowDelegationLogin: true,
    presented: undefined as never,
    accessKeys: undefined as never,
  });
  const minted = mintAuthInvocation({
    signer: generateSigner(),
    audience: oracle.did,
    ttlSeconds: 300,
  });
  const credentials = { invocation: minted.ok?.token };
  const caller = await authenticator.authenticate(credentials, {});
  const onEnd = vi.fn();
  return {
    onEnd,
    stop: watchAccess({ caller, credentials }, { authenticator, authority, allowList }, onEnd),
    revoke: (state: boolean | Promise<boolean>) => {
      isRevoked = state;
      verifier.forget(() => true);
    },
  };
}

it('watchAccess ends access when the token expires, and not before', async () => {
  const { onEnd } = await watched();
  await vi.advanceTimersByTimeAsync(298_000);
  expect(onEnd).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(2000);
  expect(onEnd).toHaveBeenCalledTimes(1);
  expect(onEnd).toHaveBeenCalledWith('token_expired');
  await vi.advanceTimersByTimeAsync(300_000);
  expect(onEnd).toHaveBeenCalledTimes(1);
});

it('watchAccess ends access within a minute of a revocation', async () => {
  const { onEnd, revoke } = await watched();
  revoke(true);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(onEnd).toHaveBeenCalledTimes(1);
  expect(onEnd).toHaveBeenCalledWith('token_revoked');
});

it('watchAccess does not end access while the store of revocations is unavailable', async () => {
  const { onEnd, revoke } = await watched();
  const away = Promise.reject(new Error('the store is away'));
  away.catch(() => undefined);
  revoke(away);
  await vi.advanceTimersByTimeAsync(120_000);
  expect(onEnd).not.toHaveBeenCalled();
});

it('watchAccess does not call back after it was stopped', async () => {
  const { onEnd, stop } = await watched();
  stop();
  await vi.advanceTimersByTimeAsync(600_000);
  expect(onEnd).not.toHaveBeenCalled();
});
