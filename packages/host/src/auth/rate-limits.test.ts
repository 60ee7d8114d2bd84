import { pino } from 'pino';
import { expect, it } from 'vitest';
import { MemoryHostBus } from '../bus/host-bus.js';
import { Metrics } from '../observability/metrics.js';
import { RateLimits } from './rate-limits.js';

const bus = new MemoryHostBus('own', pino({ level: 'silent' }));
const address = '192.0.2.1';
const chain = { signatures: 5, lookups: 0, characters: 0 };

it('RateLimits.takeCaller bounds the expensive tokens of a caller beyond its limit', async () => {
  const limits = new RateLimits({ perCaller: 10, anonymous: 10, metrics: new Metrics(), bus });
  const did = 'did:key:zAlice';
  const ask = async (work: typeof chain) => {
    const { cost, settle } = limits.reserve(address, work);
    settle(true);
    await limits.takeCaller({ did }, address, undefined, cost);
  };
  let served = 0;
  for (let i = 0; i < 50; i++) {
    const allowed = await ask(chain).then(
      () => true,
      () => false,
    );
    if (allowed) served += 1;
  }
  expect(served).toBeGreaterThan(0);
  // The work is rejected before it begins; a plain token of another caller at the address is not.
  expect(() => limits.reserve(address, chain)).toThrow('Too many requests');
  expect(() => limits.reserve(address, { ...chain, signatures: 1 })).not.toThrow();
  await limits.takeCaller({ did: 'did:key:zBob' }, address);
});
