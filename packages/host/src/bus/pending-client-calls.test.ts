import { describe, expect, it } from 'vitest';
import { CallDesk, type CallEvent, type PageCall } from './pending-client-calls.js';

const audience = { owner: 'did:key:alice', sessionId: 's1' };
const page = () => ({ connected: true });

function sent(toolCallId: string): CallEvent {
  const payload = { sessionId: 's1', requestId: 'r1', toolCallId, toolName: 'scroll', args: {} };
  return { event: 'browser_tool_call', payload, position: { turn: 1, seq: 2 } };
}

function callOf(toolCallId: string, changes: Partial<PageCall> = {}): PageCall {
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

describe('a call', () => {
  it('gets its own answer, beside others', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    const calls = ['a', 'b', 'c'].map((id) => desk.call(audience, callOf(id)));
    for (const id of ['b', 'c', 'a']) desk.answer(audience, answerTo(id, id.toUpperCase()));
    expect(await Promise.all(calls)).toEqual(['A', 'B', 'C']);
    expect(desk.open(audience)).toEqual([]);
  });

  it('is answered once, from its own audience, by its own kind', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    const call = desk.call(audience, callOf('a'));
    expect(desk.answer({ ...audience, owner: 'did:key:bob' }, answerTo('a'))).toBe(false);
    expect(desk.answer({ ...audience, sessionId: 's2' }, answerTo('a'))).toBe(false);
    expect(desk.answer(audience, { ...answerTo('a'), event: 'action_call' })).toBe(false);
    expect(desk.answer(audience, answerTo('b'))).toBe(false);
    expect(desk.answer(audience, answerTo('a', 'first'))).toBe(true);
    expect(desk.answer(audience, answerTo('a', 'second'))).toBe(false);
    expect(await call).toBe('first');
  });

  it('fails as the page says', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    const call = desk.call(audience, callOf('a'));
    desk.answer(audience, { ...answerTo('a'), error: 'no such element' });
    await expect(call).rejects.toThrow('no such element');
  });

  it('CallDesk.call gives an id of its own where the model’s is empty or longer than a page may send', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    for (const wanted of ['', 'x'.repeat(129)]) {
      const ids: string[] = [];
      const send = (id: string) => {
        ids.push(id);
        return sent(id);
      };
      const call = desk.call(audience, callOf(wanted, { send }));
      expect(ids).toEqual([expect.stringMatching(/^[\w-]{36}$/)]);
      desk.answer(audience, answerTo(ids[0] ?? ''));
      expect(await call).toBe('ok');
    }
  });

  it('CallDesk.given forgets pages that are gone', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    const call = desk.call(audience, callOf('a'));
    const gone = Array.from({ length: 100 }, () => ({ connected: true }));
    for (const each of gone) {
      desk.given(audience, 'a', each);
      each.connected = false;
    }
    const last = { connected: true };
    desk.given(audience, 'a', last);
    expect(desk.open(audience)).toMatchObject([{ isHeld: true }]);
    last.connected = false;
    for (const each of gone) each.connected = true;
    expect(desk.open(audience)).toMatchObject([{ isHeld: false }]);
    desk.answer(audience, answerTo('a'));
    await call;
  });

  it('says that nothing was run where no page comes', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000, graceMs: 10 });
    await expect(desk.call(audience, callOf('a'))).rejects.toThrow(
      'no page of the user is connected',
    );
  });

  it('says that the outcome is unknown where a page had it and said nothing', async () => {
    const desk = new CallDesk({ timeoutMs: 50, graceMs: 10 });
    const send = (id: string) => {
      desk.given(audience, id, page());
      return sent(id);
    };
    await expect(desk.call(audience, callOf('a', { send }))).rejects.toThrow(
      /outcome .* is unknown/,
    );
  });

  it('ends with its turn', async () => {
    const desk = new CallDesk({ timeoutMs: 60_000 });
    const turn = new AbortController();
    const call = desk.call(audience, callOf('a', { signal: turn.signal }));
    turn.abort(new Error('aborted'));
    await expect(call).rejects.toThrow('aborted');
    expect(desk.answer(audience, answerTo('a'))).toBe(false);
  });

  it('never takes the late answer to another that had the same id', async () => {
    const desk = new CallDesk({ timeoutMs: 10, graceMs: 10 });
    await expect(desk.call(audience, callOf('call_0'))).rejects.toThrow();
    const ids: string[] = [];
    const patient = new CallDesk({ timeoutMs: 60_000 });
    const send = (id: string) => sent(ids[ids.push(id) - 1] ?? '');
    const first = patient.call(audience, callOf('call_0', { send }));
    const second = patient.call(audience, callOf('call_0', { send }));
    expect(ids[0]).toBe('call_0');
    expect(ids[1]).not.toBe('call_0');
    patient.answer(audience, answerTo('call_0', 1));
    patient.answer(audience, answerTo(ids[1] ?? '', 2));
    expect(await Promise.all([first, second])).toEqual([1, 2]);
  });
});

it('knows which calls no connected page has', async () => {
  const desk = new CallDesk({ timeoutMs: 60_000 });
  const call = desk.call(audience, callOf('a'));
  expect(desk.open(audience)).toEqual([{ sent: sent('a'), isHeld: false }]);
  const tab = page();
  desk.given(audience, 'a', tab);
  expect(desk.open(audience)).toMatchObject([{ isHeld: true }]);
  tab.connected = false;
  expect(desk.open(audience)).toMatchObject([{ isHeld: false }]);
  desk.answer(audience, answerTo('a'));
  await call;
});
