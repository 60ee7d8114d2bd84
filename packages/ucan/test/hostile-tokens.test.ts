import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { forgeToken, forgeTokenOfLength, forgeUcan } from './support/forge.js';
import { hostileArchives } from './support/hostile-archives.js';
import { hostileCbor } from './support/hostile-cbor.js';
import { diamond, hostileChains, linkFrom } from './support/hostile-chains.js';
import { hostileSignatures } from './support/hostile-signatures.js';
import type { HostileToken } from './support/hostile-token.js';
import { hostileUcans } from './support/hostile-ucans.js';
import { alice, bob, NOW, oracle, verifierWith } from './support/verifier.js';

const corpus = [
  ...hostileArchives,
  ...hostileCbor,
  ...hostileUcans,
  ...hostileSignatures,
  ...hostileChains,
];

const present = ({ token, purpose }: HostileToken) => {
  const verifier = verifierWith();
  return purpose === 'delegation'
    ? verifier.verifyDelegation(token)
    : verifier.verifyInvocation(token);
};

describe('a hostile token is refused for what is wrong with it', () => {
  test.each(corpus)('$name: $code', async (hostile) => {
    const { ok, error } = await present(hostile);
    expect(ok).toBeUndefined();
    expect(error?.code).toBe(hostile.code);
    if (typeof hostile.token === 'string' && hostile.token.length > 0) {
      expect(JSON.stringify(error)).not.toContain(hostile.token);
    }
  });
});

test('the whole corpus leaves the event loop free', async () => {
  for (const hostile of corpus) await present(hostile);
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  for (const hostile of corpus) {
    const before = process.threadCpuUsage();
    await present(hostile);
    const { user, system } = process.threadCpuUsage(before);
    expect((user + system) / 1000, `ms for ${hostile.name}`).toBeLessThan(50);
    await setImmediate();
  }
  delay.disable();
  // Far above what it takes, for a machine that is busy with other things.
  expect(delay.max / 1e6).toBeLessThan(250);
});

describe('what stands right at a limit is let in', () => {
  const invocations = {
    'the plain token': {},
    'the longest life': { expiration: NOW + 930 },
    'a start within the skew': { notBefore: NOW + 30 },
    'empty caveats': { capabilities: [{ can: '*', with: 'ixo:oracle', nb: {} }] },
    'facts and a nonce': { facts: [{ nonce: 'x', n: [1, -1, 0.5, null, true] }], nonce: 'n' },
  };
  test.each(Object.entries(invocations))('%s', async (_, payload) => {
    const token = forgeToken(forgeUcan({ payload }));
    expect(await verifierWith().verifyInvocation(token)).toHaveProperty('ok.did', alice.did);
  });

  test('8192 characters', async () => {
    const token = forgeTokenOfLength(8192);
    expect(token).toHaveLength(8192);
    expect(await verifierWith().verifyInvocation(token)).toHaveProperty('ok.did', alice.did);
  });

  const grant = linkFrom(alice, bob, []);
  const delegations = {
    'a chain of two': [grant, linkFrom(bob, oracle, [grant])],
    'a diamond of three layers': diamond(3),
    'an endless proof': endlessProof(),
  };
  test.each(Object.entries(delegations))('%s', async (_, blocks) => {
    const verdict = await verifierWith().verifyDelegation(forgeToken(...blocks));
    expect(verdict.error).toBeUndefined();
    expect(verdict.ok?.expiration).toBe(NOW + 300);
  });

  test('a delegation without an expiry, and one until the year 9999', async () => {
    const endless = linkFrom(alice, oracle, [], { payload: { expiration: null } });
    const verdict = await verifierWith().verifyDelegation(forgeToken(endless));
    expect(verdict.ok?.expiration).toBe(Number.POSITIVE_INFINITY);
    const last = linkFrom(alice, oracle, [], { payload: { expiration: 253_402_300_799 } });
    expect((await verifierWith().verifyDelegation(forgeToken(last))).ok?.expiration).toBe(
      253_402_300_799,
    );
  });

  function endlessProof() {
    const endless = linkFrom(alice, bob, [], { payload: { expiration: null } });
    return [endless, linkFrom(bob, oracle, [endless])];
  }
});
