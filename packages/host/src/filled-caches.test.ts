import { generateSigner, type VerifiedDelegation } from '@sibyl/ucan';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { usedMemory } from '../test/support/used-memory.js';
import { SummaryCache } from './agent/agent.js';
import { PresentedDelegations } from './auth/authenticator.js';
import { CallerAllowList } from './auth/caller-allow-list.js';
import { Holders, RateLimits } from './auth/rate-limits.js';
import { MemoryHostBus } from './bus/host-bus.js';
import { PendingClientCalls } from './bus/pending-client-calls.js';
import { Metrics } from './observability/metrics.js';

const logger = pino({ level: 'silent' });
const bus = new MemoryHostBus('own', logger);
/** Allowance for the memory of the test itself. */
const SLACK_MB = 3;

/** Each fills one cache beyond its limit, and returns it to keep it alive. */
const fills: readonly [name: string, limitMb: number, fill: () => Promise<unknown>][] = [
  [
    'RateLimits',
    3 * 8,
    async () => {
      const limits = new RateLimits({
        perCaller: 1e9,
        anonymous: 1e9,
        metrics: new Metrics(),
        holders: new Holders({ hasFinishedTurn: async () => false, now: Date.now }),
        bus,
      });
      for (let i = 0; i < 60_000; i++) {
        const address = `2001:db8:${(i >> 16).toString(16)}:${(i & 0xffff).toString(16)}::1`;
        limits.takeAnonymous(address);
        const owner = `did:web:${i}.${'x'.repeat(200)}`;
        await limits.takeCaller({ owner, address, isKnown: i % 2 === 0 });
      }
      return limits;
    },
  ],
  [
    'SummaryCache',
    4,
    async () => {
      const summaries = new SummaryCache();
      for (let i = 0; i < 3000; i++) summaries.set(`hash ${i}`, `${i} é€`.repeat(300));
      return summaries;
    },
  ],
  [
    'CallDesk',
    4,
    async () => {
      const pendingCalls = new PendingClientCalls({ timeoutMs: 60_000 });
      for (let i = 0; i < 30_000; i++) await callAndEnd(pendingCalls, `${i}`.padEnd(128, 'x'));
      return pendingCalls;
    },
  ],
  [
    'CallerAllowList',
    1,
    async () => {
      const callers = { has: async () => true } as never;
      const blocked = { list: async () => [] } as never;
      const allowed = new CallerAllowList({ listed: [], callers, blocked, bus, logger });
      for (let i = 0; i < 10_000; i++) await allowed.assertAllowed(`did:key:${i}`.padEnd(200, 'z'));
      return allowed;
    },
  ],
  [
    'PresentedDelegations',
    2,
    async () => {
      const delegations = { recordUse: async () => [] } as never;
      const presented = new PresentedDelegations({
        oracleDid: generateSigner().did,
        delegations,
        disk: undefined,
        logger,
        loginMaxDays: undefined,
      });
      for (let i = 0; i < 20_000; i++) await presented.record(createDelegation(i));
      return presented;
    },
  ],
];

describe('caches filled by unauthenticated callers', () => {
  it.each(fills)('%s takes at most %i MB', async (_, limitMb, fill) => {
    const before = usedMemory();
    const kept = await fill();
    expect(usedMemory() - before).toBeLessThan(limitMb + SLACK_MB);
    expect(kept).toBeDefined();
  });
});

/** Makes a call that is answered at once, so that only its id is kept. */
function callAndEnd(pendingCalls: PendingClientCalls, toolCallId: string): Promise<unknown> {
  const audience = { owner: 'did:key:a', sessionId: 's' };
  const { signal } = new AbortController();
  return pendingCalls.call(audience, {
    event: 'browser_tool_call',
    toolCallId,
    toolName: 't',
    signal,
    send: (id) => {
      queueMicrotask(() =>
        pendingCalls.answer(audience, { event: 'browser_tool_call', toolCallId: id, result: 1 }),
      );
      return {} as never;
    },
  });
}

function createDelegation(i: number): VerifiedDelegation {
  const did = 'did:key:z6Mk';
  const cid = `bafyrei${String(i).padStart(52, 'a')}`;
  return {
    did,
    cid,
    audience: did,
    issuers: [did],
    cids: [cid],
    expiration: 1,
    capabilities: [],
    token: '',
  };
}
