import type { CallerTurns, OpenInterrupt } from '@sibyl/plugin-kit/surface';
import { describe, expect, it, vi } from 'vitest';
import { answerChat, ChatRequest } from './chat.js';

const list = <T>(count: number, build: (i: number) => T) =>
  Array.from({ length: count }, (_, i) => build(i));

function newTurns(questions: readonly object[]) {
  const answer = vi.fn(async (_: object) => ({ runId: 'run' }));
  const keepResult = vi.fn(async (_: object) => undefined);
  const turns = {
    findThread: async () => 's',
    pending: async () => questions as OpenInterrupt[],
    findRun: async (runId: string) => ({ runId, messageId: 'm' }),
    continueThread: async () => ({ runId: 'new', messageId: 'm' }),
    deny: answer,
    answer,
    keepResult,
  };
  return { turns: turns as unknown as CallerTurns, answer, keepResult };
}

const result = (i: number, output: string) => {
  const part = { type: 'dynamic-tool', toolCallId: `c${i}`, output };
  return { ...part, state: 'output-available' };
};
const newChat = (parts: readonly object[], ...more: readonly object[]) =>
  ({ id: 'chat', messages: [{ id: 'm', role: 'assistant', parts }, ...more] }) as ChatRequest;

describe('answerChat', () => {
  it('reads each question once, however many parts there are', async () => {
    const readData = vi.fn(() => ({ toolCallId: 'c0', toolName: 'tool', args: {} }));
    const question = Object.defineProperty({ id: 'q' }, 'data', { get: readData });
    const parts = [...list(1000, (i) => result(i + 1, 'other')), result(0, 'mine')];
    const { turns, answer, keepResult } = newTurns([question]);
    await answerChat(turns, newChat(parts), '');
    await answerChat(turns, newChat(parts, { id: 'u', role: 'user', parts: [] }), '');
    expect(answer.mock.calls).toEqual([[{ id: 'q', value: 'mine' }]]);
    expect(keepResult.mock.calls).toEqual([[{ id: 'q', value: 'mine' }]]);
    expect(readData.mock.calls.length).toBeLessThanOrEqual(2);
  });

  it('takes the first result of a call, and an approval only once it was answered', async () => {
    const call = { id: 'q', data: { toolCallId: 'c0', toolName: 'tool', args: {} } };
    const approval = { id: 'a', isApproval: true };
    const asked = { type: 'dynamic-tool', toolCallId: 'c1', output: 'early' };
    const parts = [
      { ...asked, state: 'output-available', approval: { id: 'a', approved: true } },
      result(0, 'first'),
      result(0, 'second'),
      { ...asked, state: 'approval-responded', approval: { id: 'a', approved: false } },
    ];
    const { turns, answer } = newTurns([call, approval]);
    await answerChat(turns, newChat(parts), '');
    expect(answer.mock.calls).toEqual([[{ id: 'q', value: 'first' }], [{ id: 'a' }]]);
  });
});

describe('ChatRequest', () => {
  it('refuses more than 10,000 parts of all messages together, before it reads them', () => {
    const readType = vi.fn(() => 'text');
    const part = Object.defineProperty({}, 'type', { enumerable: true, get: readType });
    const toMessages = (last: number) =>
      list(100, (i) => ({ id: `${i}`, role: 'user', parts: list(i ? 100 : last, () => part) }));
    const { error } = ChatRequest.safeParse({ id: 'chat', messages: toMessages(101) });
    expect(error?.issues).toMatchObject([
      { path: ['messages'], message: 'may hold at most 10000 parts together' },
    ]);
    expect(readType).not.toHaveBeenCalled();
    expect(ChatRequest.safeParse({ id: 'chat', messages: toMessages(100) }).success).toBe(true);
    for (const messages of [undefined, 5, [null], [{ parts: 5 }]])
      expect(ChatRequest.safeParse({ id: 'chat', messages }).success).toBe(false);
  });
});
