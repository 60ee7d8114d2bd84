import { describe, expect, it } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { AgentStep } from '../../agent/steps.js';
import type { NewInterrupt } from '../../store/runs/pauses.js';
import type { Run } from '../../store/runs/run.js';
import { buildFirstFrame, readProgress, readSteps } from './turn-progress.js';

const call = { id: 'c1', name: 'add', args: { a: 1 }, status: 'done', output: '"2"' } as const;

const modelStep = (
  message: Omit<Extract<AgentStep, { type: 'model' }>['message'], 'role'>,
  path = '',
): AgentStep => ({ type: 'model', path, message: { role: 'assistant', ...message } });

describe('readSteps', () => {
  it('collects the answer of earlier attempts: texts as paragraphs, reasoning and calls', () => {
    const toolCalls = [
      { id: 'c1', name: 'add', input: '{"a":1}' },
      { id: 'c2', name: 'wait', input: '{}' },
    ];
    const message = readSteps([
      modelStep({ text: 'I look.', reasoning: 'hm', toolCalls }),
      { type: 'result', path: '', call },
      { type: 'retry', path: '', callId: 'c2' },
      modelStep({ text: 'It is 2.' }),
    ]).toMessage();
    expect(message).toEqual({
      content: 'I look.\n\nIt is 2.',
      parts: [
        { type: 'reasoning', text: 'hm' },
        { type: 'text', text: 'I look.' },
        { type: 'tool-call', call },
        {
          type: 'tool-call',
          call: expect.objectContaining({ id: 'c2', name: 'wait', args: {}, status: 'error' }),
        },
        { type: 'text', text: '\n\nIt is 2.' },
      ],
    });
  });

  it('adds no paragraph for a step without text', () => {
    const toolCalls = [{ id: 'c1', name: 'add', input: '{"a":1}' }];
    const steps = [modelStep({ text: 'a' }), modelStep({ text: '', toolCalls })];
    expect(readSteps(steps).content).toBe('a');
  });

  it('leaves out what sub-agents did', () => {
    const steps: AgentStep[] = [
      modelStep({ text: 'main' }),
      modelStep({ text: 'sub' }, 'c1'),
      { type: 'result', path: 'c1', call },
    ];
    expect(readSteps(steps).toMessage()).toEqual({ content: 'main' });
  });
});

describe('readProgress', () => {
  const test = useStore('sqlite');

  const createQuestion = (path: string): NewInterrupt => ({
    id: crypto.randomUUID(),
    kind: 'input_required',
    schema: {},
    callId: path,
    path,
    expiresInMs: 60_000,
  });

  it('is undefined for the first attempt of a turn, even if it has stored steps', async () => {
    const { run: first, key } = await startTestRun(test.store);
    const steps = [{ step: 1, value: modelStep({ text: 'a' }) }];
    await test.store.runs.flush([{ ...key, frames: [], steps }]);
    expect(await readProgress(test.store.runs, first)).toBeUndefined();
    expect(buildFirstFrame(first, undefined)).toEqual({
      event: 'run',
      data: { runId: first.runId, sessionId: first.sessionId, requestId: first.requestId },
    });
  });

  it('contains the steps and the answers of earlier attempts', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    const [answered, expired] = [createQuestion('answered'), createQuestion('expired')];
    await runs.pause({
      ...key,
      interrupts: [answered, expired],
      limit: 10,
      steps: [{ step: 1, value: modelStep({ text: 'a part' }) }],
      request: {},
      end: { message: { content: 'a part', isComplete: false } },
    });
    const { owner } = key;
    const end = { owner, interruptId: answered.id, status: 'answered', value: { ok: 1 } } as const;
    await runs.endInterrupt(end);
    // Seen while one is still open.
    const open = await readProgress(runs, { ...((await runs.find(key)) as Run), attempt: 2 });
    expect([...(open?.answers ?? [])]).toEqual([
      ['answered', { status: 'answered', value: { ok: 1 } }],
    ]);
    await runs.endInterrupt({ owner, interruptId: expired.id, status: 'expired' });
    const next = (await runs.latestAttempt((await runs.find(key)) as Run)) as Run;
    expect(next.attempt).toBe(2);
    const progress = await readProgress(runs, next);
    expect(progress?.steps).toEqual([modelStep({ text: 'a part' })]);
    expect(new Map(progress?.answers)).toEqual(
      new Map<string, unknown>([
        ['answered', { status: 'answered', value: { ok: 1 } }],
        ['expired', { status: 'expired' }],
      ]),
    );
    expect(buildFirstFrame(next, progress).data).toMatchObject({
      runId: next.runId,
      resumed: true,
      attempt: 2,
      partialLength: 6,
    });
  });
});
