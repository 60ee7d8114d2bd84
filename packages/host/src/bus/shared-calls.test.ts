import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { expect, it, vi } from 'vitest';
import { MemoryHostBus } from './host-bus.js';
import { SharedCalls } from './shared-calls.js';
import type { SocketDirectory } from './socket-presence.js';

const key = { owner: 'did:a', sessionId: 's' };
const answer = { event: 'browser_tool_call', toolCallId: 'call', result: 1 } as const;
const logger = pino({ level: 'silent' });
const outage = new Error('Connection terminated');

function share(answerCall: SocketDirectory['answerCall']) {
  const bus = new MemoryHostBus('own', logger);
  const send = vi.spyOn(bus, 'send');
  const directory: Pick<SocketDirectory, 'answerCall'> = { answerCall };
  let regain = () => {};
  const onRegained = (listener: () => void) => {
    regain = listener;
    return () => {};
  };
  const deps = { directory: directory as SocketDirectory, bus, liveness: { onRegained }, logger };
  return { calls: new SharedCalls(deps), send, regain: () => regain() };
}

it('SharedCalls.forward stores the answer of a page once the database is available again', async () => {
  const answerCall = vi.fn(async () => true).mockRejectedValueOnce(outage);
  const { calls, send } = share(answerCall);
  await calls.forward(key, 'other', answer, 60_000);
  expect(answerCall.mock.calls).toHaveLength(2);
  expect(send.mock.calls).toEqual([['other', 'page-answered', { ...key, toolCallId: 'call' }]]);
});

it('SharedCalls.forward stops when the turn no longer waits', async () => {
  const answerCall = vi.fn(async () => Promise.reject(outage));
  const { calls, send } = share(answerCall);
  await calls.forward(key, 'other', answer, 0);
  expect(answerCall.mock.calls).toHaveLength(1);
  expect(send).not.toHaveBeenCalled();
});

it('SharedCalls stores recent answers again after PostgreSQL was away, which loses them in a crash', async () => {
  const answerCall = vi.fn(async () => true);
  const { calls, send, regain } = share(answerCall);
  await calls.forward(key, 'other', answer, 60_000);
  await calls.forward(key, 'other', { ...answer, toolCallId: 'late' }, 0);
  await sleep(10);
  regain();
  await expect.poll(() => send.mock.calls.length).toBe(3);
  expect(send.mock.calls.at(-1)).toEqual(send.mock.calls[0]);
});
