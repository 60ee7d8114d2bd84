import type { CallerTurns, OpenInterrupt } from '@sibyl/plugin-kit/surface';
import { describe, expect, it, vi } from 'vitest';
import { A2aCall, A2aRequests, type RequestDeps } from './requests.js';
import { answerQuestions } from './tasks.js';

const newTurns = () => {
  const answer = vi.fn(async (_: object) => ({ runId: 'run' }));
  return { answer, turns: { answer } as unknown as CallerTurns };
};
const newQuestions = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ id: `q${i}` }) as OpenInterrupt);

describe('answerQuestions', () => {
  it('reads each data part once, however many questions are open', async () => {
    const readId = vi.fn(() => 'q1');
    const parts = Array.from({ length: 100 }, () =>
      Object.defineProperty({}, 'id', { enumerable: true, get: readId }),
    );
    const { turns, answer } = newTurns();
    await answerQuestions(turns, newQuestions(20), { text: '', data: parts });
    expect(answer).toHaveBeenCalledOnce();
    expect(readId.mock.calls.length).toBeLessThanOrEqual(300);
  });

  it('takes the first part that names a question; a part without a value is the value', async () => {
    const data = [
      1,
      null,
      [{ id: 'q0', value: 'in a list' }],
      { id: 7, value: 'not a text' },
      { id: 'other', value: 'of another question' },
      { id: 'q0', value: undefined },
      { id: 'q0', value: 'too late' },
      { id: 'q1', color: 'red' },
    ];
    const { turns, answer } = newTurns();
    await answerQuestions(turns, newQuestions(3), { text: 'all', data });
    expect(answer.mock.calls).toEqual([
      [{ id: 'q0', value: undefined }],
      [{ id: 'q1', value: { id: 'q1', color: 'red' } }],
    ]);
  });

  it('takes the first part, or else the text, for the only question', async () => {
    const { turns, answer } = newTurns();
    await answerQuestions(turns, newQuestions(1), { text: 'all', data: [5, { id: 'q0' }] });
    await answerQuestions(turns, newQuestions(1), { text: 'all', data: [5, 6] });
    await answerQuestions(turns, newQuestions(1), { text: 'all', data: [] });
    expect(answer.mock.calls.map(([sent]) => sent)).toEqual([
      { id: 'q0', value: { id: 'q0' } },
      { id: 'q0', value: 5 },
      { id: 'q0', value: 'all' },
    ]);
  });
});

describe('A2aRequests.sendMessage', () => {
  it('refuses a message of more than 1,000 parts before it reads them', async () => {
    const continueThread = vi.fn(async () => {
      throw new Error('started');
    });
    const listAttempts = vi.fn(async () => []);
    const surface = { for: () => ({ continueThread, listAttempts }) };
    const requests = new A2aRequests({ surface } as unknown as RequestDeps, vi.fn());
    const signal = new AbortController().signal;
    const send = (count: number, taskId: string) => {
      const part = { content: { $case: 'data', value: 1 } };
      const parts = Array.from({ length: count }, () => part);
      const message = { messageId: 'm', contextId: 'c', taskId, parts };
      const call = new A2aCall(surface as never, {} as never, signal, undefined);
      return requests.sendMessage({ message } as never, call);
    };
    for (const taskId of ['', 'task'])
      await expect(send(1001, taskId)).rejects.toThrow('message.parts may hold at most 1000 parts');
    expect(continueThread).not.toHaveBeenCalled();
    expect(listAttempts).not.toHaveBeenCalled();
    await expect(send(1000, '')).rejects.toThrow('started');
  });
});
