import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../test/support/test-database.js';
import { finishTestRun, openTestSession, startTestRun } from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';

describe.each(engines)('pages of messages on %s', (engine) => {
  const test = useStore(engine);

  /** The turns q1, q2 and q3, of which the second was answered again before the third was asked. */
  async function openBranched() {
    const { store } = test;
    const session = await openTestSession(store);
    const ids = new Map<string, string>();
    const ask = async (question: string, answer: string, origin?: TurnOrigin) => {
      const message = { content: question };
      const { key } = await startTestRun(store, { ...session, message, origin });
      const ended = await finishTestRun(store.runs, key, { content: answer });
      if (!origin) ids.set(question, ended?.message.parent ?? '');
      ids.set(answer, ended?.message.id ?? '');
    };
    await ask('q1', 'a1');
    await ask('q2', 'a2');
    await ask('', 'b2', { questionId: ids.get('q2') ?? '' });
    await ask('q3', 'a3');
    const page = async (cursor: { before?: string; after?: string }, limit = 1) => {
      const result = await store.messages.page({
        ...session,
        branch: 1,
        isBranched: true,
        limit,
        before: cursor.before && ids.get(cursor.before),
        after: cursor.after && ids.get(cursor.after),
      });
      if ('error' in result) throw new Error(result.error);
      const { messages, hasOlder, hasNewer } = result.ok;
      const said = messages.map(({ content }) => content).join(' ');
      return {
        said,
        hasOlder,
        hasNewer,
        siblings: messages.flatMap((each) => each.siblings ?? []),
      };
    };
    return { page, ids };
  }

  it('MessageStore.page has an answer that was given again in the turn of its question', async () => {
    const { page, ids } = await openBranched();
    const siblings = [ids.get('a2'), ids.get('b2')];
    const middle = { said: 'q2 b2', hasOlder: true, hasNewer: true, siblings };
    expect(await page({ before: 'q3' })).toEqual(middle);
    expect(await page({ before: 'b2' })).toEqual(middle);
    expect(await page({ after: 'a1' })).toEqual(middle);
  });

  it('MessageStore.page ends at its limit in both directions, also on a branch', async () => {
    const { page } = await openBranched();
    expect(await page({})).toMatchObject({ said: 'q3 a3', hasOlder: true, hasNewer: false });
    expect(await page({}, 2)).toMatchObject({ said: 'q2 b2 q3 a3', hasOlder: true });
    expect(await page({ before: 'q3' }, 2)).toMatchObject({ said: 'q1 a1 q2 b2', hasOlder: false });
    expect(await page({ after: 'a1' }, 2)).toMatchObject({ said: 'q2 b2 q3 a3', hasNewer: false });
    expect(await page({ before: 'q2' })).toMatchObject({ said: 'q1 a1', hasNewer: true });
  });

  it('MessageStore.recent does not measure turns after the last one that it reads', async () => {
    const { store } = test;
    const session = await openTestSession(store);
    const message = { ...session, type: 'human', requestId: 'request', isComplete: true } as const;
    for (const size of [100, 100, 100, 100_000])
      await store.messages.append({ ...message, content: 'x'.repeat(size) });
    const request = { ...session, branch: 0, throughTurn: 3, bytes: 1000 };
    expect(await store.messages.recent(request)).toHaveLength(3);
  });
});
