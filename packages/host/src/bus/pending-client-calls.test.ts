import { describe, expect, it } from 'vitest';
import type { CallEvent } from './event-bus.js';
import { type ClientCall, PendingClientCalls } from './pending-client-calls.js';
import type { SharedCalls } from './shared-calls.js';
import type { StoredCall } from './socket-presence.js';

const key = { owner: 'did:key:alice', sessionId: 's1' };
const page = () => ({ connected: true });

function sent(toolCallId: string): CallEvent {
  const payload = { sessionId: 's1', requestId: 'r1', toolCallId, toolName: 'scroll', args: {} };
  return { event: 'browser_tool_call', payload, position: { turn: 1, seq: 2 } };
}

function createCall(toolCallId: string, changes: Partial<ClientCall> = {}): ClientCall {
  const { signal } = new AbortController();
  return {
    event: 'browser_tool_call',
    toolCallId,
    toolName: 'scroll',
    signal,
    send: sent,
    ...changes,
  };
}

const answerTo = (toolCallId: string, result: unknown = 'ok') =>
  ({ event: 'browser_tool_call', toolCallId, result }) as const;

describe('PendingClientCalls.call', () => {
  it('resolves with its own answer among others', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    const calls = ['a', 'b', 'c'].map((id) => pending.call(key, createCall(id)));
    for (const id of ['b', 'c', 'a']) pending.answer(key, answerTo(id, id.toUpperCase()));
    expect(await Promise.all(calls)).toEqual(['A', 'B', 'C']);
    expect(pending.list(key)).toEqual([]);
  });

  it('is answered once, from its own session, by the same event', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    const call = pending.call(key, createCall('a'));
    expect(pending.answer({ ...key, owner: 'did:key:bob' }, answerTo('a'))).toBe(false);
    expect(pending.answer({ ...key, sessionId: 's2' }, answerTo('a'))).toBe(false);
    expect(pending.answer(key, { ...answerTo('a'), event: 'action_call' })).toBe(false);
    expect(pending.answer(key, answerTo('b'))).toBe(false);
    expect(pending.answer(key, answerTo('a', 'first'))).toBe(true);
    expect(pending.answer(key, answerTo('a', 'second'))).toBe(false);
    expect(await call).toBe('first');
  });

  it('is removed for other hosts only once it is stored for them', async () => {
    const done: string[] = [];
    const stored = Promise.withResolvers<void>();
    const shared: Pick<SharedCalls, 'add' | 'remove' | 'onAnswered' | 'onEnded'> = {
      add: () => stored.promise,
      remove: (_key, id) => void done.push(`removed ${id}`),
      onAnswered: () => {},
      onEnded: () => {},
    };
    const pending = new PendingClientCalls({ timeoutMs: 60_000, shared: shared as SharedCalls });
    const call = pending.call(key, createCall('a'));
    pending.answer(key, answerTo('a'));
    await call;
    done.push('stored');
    stored.resolve();
    await expect.poll(() => done).toEqual(['stored', 'removed a']);
  });

  it('stores the call again for other hosts if the database has lost it, and takes the answer from there', async () => {
    const stored: StoredCall = { isStored: false, isDelivered: false };
    const added: string[] = [];
    const shared: Pick<SharedCalls, 'add' | 'find' | 'remove' | 'onAnswered' | 'onEnded'> = {
      add: async (_key, call) => void added.push(call.payload.toolCallId),
      find: async () => stored,
      remove: () => {},
      onAnswered: () => {},
      onEnded: () => {},
    };
    const pending = new PendingClientCalls({ timeoutMs: 60_000, shared: shared as SharedCalls });
    const call = pending.call(key, createCall('a'));
    await expect.poll(() => added.length, { timeout: 30_000 }).toBeGreaterThan(1);
    expect(new Set(added)).toEqual(new Set(['a']));
    Object.assign(stored, { isStored: true, answer: answerTo('a', 'elsewhere') });
    expect(await call).toBe('elsewhere');
  });

  it('rejects with the error of the page', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    const call = pending.call(key, createCall('a'));
    pending.answer(key, { ...answerTo('a'), error: 'no such element' });
    await expect(call).rejects.toThrow('no such element');
  });

  it('replaces an id that is empty or longer than a page may send', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    for (const wanted of ['', 'x'.repeat(129)]) {
      const ids: string[] = [];
      const send = (id: string) => {
        ids.push(id);
        return sent(id);
      };
      const call = pending.call(key, createCall(wanted, { send }));
      expect(ids).toEqual([expect.stringMatching(/^[\w-]{36}$/)]);
      pending.answer(key, answerTo(ids[0] ?? ''));
      expect(await call).toBe('ok');
    }
  });

  it('forgets closed connections', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    const call = pending.call(key, createCall('a'));
    const gone = Array.from({ length: 100 }, () => ({ connected: true }));
    for (const each of gone) {
      pending.markDelivered(key, 'a', each);
      each.connected = false;
    }
    const last = { connected: true };
    pending.markDelivered(key, 'a', last);
    expect(pending.list(key)).toMatchObject([{ isDelivered: true }]);
    last.connected = false;
    for (const each of gone) each.connected = true;
    expect(pending.list(key)).toMatchObject([{ isDelivered: false }]);
    pending.answer(key, answerTo('a'));
    await call;
  });

  it('rejects with "was not run" if no page connects', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000, graceMs: 10 });
    await expect(pending.call(key, createCall('a'))).rejects.toThrow(
      'no page of the user is connected',
    );
  });

  it('rejects with "outcome is unknown" if a page received the call and did not answer', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 50, graceMs: 10 });
    const send = (id: string) => {
      pending.markDelivered(key, id, page());
      return sent(id);
    };
    await expect(pending.call(key, createCall('a', { send }))).rejects.toThrow(
      /outcome .* is unknown/,
    );
  });

  it('ends with its turn', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 60_000 });
    const turn = new AbortController();
    const call = pending.call(key, createCall('a', { signal: turn.signal }));
    turn.abort(new Error('aborted'));
    await expect(call).rejects.toThrow('aborted');
    expect(pending.answer(key, answerTo('a'))).toBe(false);
  });

  it('never accepts the late answer to another call with the same id', async () => {
    const pending = new PendingClientCalls({ timeoutMs: 10, graceMs: 10 });
    await expect(pending.call(key, createCall('call_0'))).rejects.toThrow();
    const ids: string[] = [];
    const calls = new PendingClientCalls({ timeoutMs: 60_000 });
    const send = (id: string) => sent(ids[ids.push(id) - 1] ?? '');
    const first = calls.call(key, createCall('call_0', { send }));
    const second = calls.call(key, createCall('call_0', { send }));
    expect(ids[0]).toBe('call_0');
    expect(ids[1]).not.toBe('call_0');
    calls.answer(key, answerTo('call_0', 1));
    calls.answer(key, answerTo(ids[1] ?? '', 2));
    expect(await Promise.all([first, second])).toEqual([1, 2]);
  });
});

it('PendingClientCalls.list shows which calls no connected page has received', async () => {
  const pending = new PendingClientCalls({ timeoutMs: 60_000 });
  const call = pending.call(key, createCall('a'));
  expect(pending.list(key)).toEqual([{ sent: sent('a'), isDelivered: false }]);
  const tab = page();
  pending.markDelivered(key, 'a', tab);
  expect(pending.list(key)).toMatchObject([{ isDelivered: true }]);
  tab.connected = false;
  expect(pending.list(key)).toMatchObject([{ isDelivered: false }]);
  pending.answer(key, answerTo('a'));
  await call;
});
