import { describe, expect, it } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { createApproval, createQuestion } from '../../../test/support/test-interrupts.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { NewInterrupt } from '../../store/runs/pauses.js';
import type { Run } from '../../store/runs/run.js';
import { hostStopping } from '../start/turn-limits.js';
import type { Turns } from '../turns.js';
import { PausedTurns } from './paused-turns.js';

const SCHEMA = {
  type: 'object',
  properties: { ok: { type: 'boolean' }, note: { type: 'string', default: 'none' } },
  required: ['ok'],
};

const question = (id: string, more: Partial<NewInterrupt> = {}) =>
  createQuestion(id, { schema: SCHEMA, ...more });

// `expire` works on the rows of all owners.
describe('PausedTurns', () => {
  const test = useStore('sqlite', { hasTwins: false });

  function open() {
    const adopted: Run[] = [];
    const state = { isStopping: false };
    const turns = {
      assertOpen: () => {
        if (state.isStopping) throw hostStopping();
      },
      adopt: async (run: Run) => void adopted.push(run),
    };
    return { paused: new PausedTurns(test.store, turns as Turns), adopted, state };
  }

  /** A turn of a new user that asks these questions. */
  async function pause(...interrupts: readonly NewInterrupt[]) {
    const { key, session } = await startTestRun(test.store);
    const result = await test.store.runs.pause({
      ...key,
      interrupts,
      limit: 10,
      steps: [],
      request: {},
      end: { message: { content: '', isComplete: false } },
    });
    expect(result.state).toBe('paused');
    return { ...key, session };
  }

  const findInterrupt = (owner: string, interruptId: string) =>
    test.store.runs.findInterrupt({ owner, interruptId });

  it('pending lists the open questions of a paused turn, and which are approvals', async () => {
    const { paused } = open();
    const { owner, session } = await pause(question('a'), question('b'), createApproval('c'));
    await pause(createApproval('b'));
    await paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    const pending = await paused.pending(session);
    const listed = pending.map(({ id, isApproval, status }) => [id, isApproval, status]);
    expect(listed).toEqual([
      ['b', false, 'open'],
      ['c', true, 'open'],
    ]);
  });

  it('pending is empty for a turn that runs, for one that has continued and for no turn', async () => {
    const { paused } = open();
    const running = await startTestRun(test.store);
    expect(await paused.pending(running.session)).toEqual([]);
    const { owner, session } = await pause(question('a'));
    expect(await paused.pending(session)).toHaveLength(1);
    expect(await paused.pending({ ...session, owner: running.session.owner })).toEqual([]);
    await paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    expect(await paused.pending(session)).toEqual([]);
  });

  it('answer continues the turn as its next attempt, with the defaults of the schema', async () => {
    const { paused, adopted } = open();
    const { owner, runId } = await pause(question('a'));
    const continued = await paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    expect(adopted).toMatchObject([{ owner, attempt: 2, status: 'running' }]);
    expect(continued).toEqual({ runId: adopted[0]?.runId });
    expect(continued.runId).not.toBe(runId);
    expect(await findInterrupt(owner, 'a')).toMatchObject({
      status: 'answered',
      value: { ok: true, note: 'none' },
    });
  });

  it('answer names what the turn still waits for, and continues it with the last answer', async () => {
    const { paused, adopted } = open();
    const { owner, runId } = await pause(question('a'), question('b', { kind: 'tool_call' }));
    const value = { ok: true };
    const pending = [{ id: 'b', kind: 'tool_call' }];
    expect(await paused.answer({ owner, interruptId: 'a', value })).toEqual({ runId, pending });
    // Again, while the turn still waits.
    expect(await paused.answer({ owner, interruptId: 'a', value })).toEqual({ runId });
    expect(adopted).toEqual([]);
    const last = await paused.answer({ owner, interruptId: 'b', value });
    expect(adopted.map(({ runId: id }) => id)).toEqual([last.runId]);
  });

  it('the same answer again returns the same run; another one is refused', async () => {
    const { paused, adopted } = open();
    const { owner } = await pause(question('a'));
    const answer = (value: unknown) => paused.answer({ owner, interruptId: 'a', value });
    const continued = await answer({ ok: true });
    expect(await answer({ note: 'none', ok: true })).toEqual(continued);
    await expect(answer({ ok: false })).rejects.toMatchObject({ code: 'interrupt_closed' });
    expect(adopted).toHaveLength(1);
    expect(await findInterrupt(owner, 'a')).toMatchObject({ value: { ok: true } });
  });

  it('answer refuses a value that the schema does not accept, and the turn waits on', async () => {
    const { paused, adopted } = open();
    const { owner } = await pause(question('a'));
    const refused = await paused
      .answer({ owner, interruptId: 'a', value: { ok: 'yes' } })
      .catch((error) => error);
    expect(refused.code).toBe('validation_failed');
    expect(String(refused.lines ?? refused.message)).toContain('ok');
    expect(await findInterrupt(owner, 'a')).toMatchObject({ status: 'open' });
    expect(adopted).toEqual([]);
  });

  it('answer refuses an unknown question, and one of another user', async () => {
    const { paused } = open();
    const { owner } = await pause(question('a'));
    const other = await pause(question('z'));
    const value = { ok: true };
    const unknown = { code: 'interrupt_not_found' };
    const foreign = paused.answer({ owner: other.owner, interruptId: 'a', value });
    await expect(foreign).rejects.toMatchObject(unknown);
    await expect(paused.answer({ owner, interruptId: 'b', value })).rejects.toMatchObject(unknown);
    expect(await findInterrupt(owner, 'a')).toMatchObject({ status: 'open' });
  });

  it('answer does not decide an approval', async () => {
    const { paused, adopted } = open();
    const { owner } = await pause(createApproval('a'));
    const answer = paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    await expect(answer).rejects.toMatchObject({ code: 'decision_unsigned' });
    expect(await findInterrupt(owner, 'a')).toMatchObject({ status: 'open' });
    expect(adopted).toEqual([]);
  });

  it('answer accepts nothing while the host stops', async () => {
    const { paused, state } = open();
    const { owner } = await pause(question('a'));
    state.isStopping = true;
    const answer = paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    await expect(answer).rejects.toMatchObject({ code: 'host_stopping' });
    expect(await findInterrupt(owner, 'a')).toMatchObject({ status: 'open' });
  });

  it('an answer that comes too late is refused', async () => {
    const { paused, adopted } = open();
    const { owner } = await pause(question('a', { expiresInMs: -1 }));
    const late = () => paused.answer({ owner, interruptId: 'a', value: { ok: true } });
    await expect(late()).rejects.toMatchObject({ code: 'interrupt_closed' });
    await paused.expire();
    await expect(late()).rejects.toMatchObject({ code: 'interrupt_closed' });
    expect(adopted).toHaveLength(1);
  });

  it('an answer without a value is not that of a question that has expired', async () => {
    const { paused } = open();
    const { owner } = await pause(question('a', { schema: {}, expiresInMs: -1 }));
    await paused.expire();
    const late = paused.answer({ owner, interruptId: 'a', value: null });
    await expect(late).rejects.toMatchObject({ code: 'interrupt_closed' });
  });

  it('expire continues turns whose last question has expired, once', async () => {
    const { paused, adopted } = open();
    const expired = await pause(question('a', { expiresInMs: -1 }));
    const partly = await pause(question('a', { expiresInMs: -1 }), question('b'));
    const waiting = await pause(question('a'));
    await paused.expire();
    await paused.expire();
    expect(adopted).toMatchObject([{ owner: expired.owner, attempt: 2 }]);
    expect(await findInterrupt(expired.owner, 'a')).toMatchObject({
      status: 'expired',
      nextRunId: adopted[0]?.runId,
    });
    const statuses = ['a', 'b'].map(async (id) => (await findInterrupt(partly.owner, id))?.status);
    expect(await Promise.all(statuses)).toEqual(['expired', 'open']);
    expect(await findInterrupt(waiting.owner, 'a')).toMatchObject({ status: 'open' });
  });
});
