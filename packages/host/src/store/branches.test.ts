import { describe, expect, it } from 'vitest';
import { scale } from '../../../../scripts/test-scale.ts';
import { engines, useStore } from '../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
} from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';

const BRANCHES = scale(1_000, 200);

describe.each(engines)('branches of a session on %s', (engine) => {
  const test = useStore(engine);

  /** A session whose turns are answered at once. */
  async function openConversation() {
    const { store } = test;
    const session = await openTestSession(store);
    const { owner, sessionId } = session;
    const ask = async (content: string, origin?: TurnOrigin) => {
      const request = createRunRequest({ ...session, message: { content }, origin });
      const run = expectStarted(await store.runs.start(request));
      const ended = await finishTestRun(
        store.runs,
        { owner, runId: run.id },
        { content: `re ${content}` },
      );
      return { run, answer: ended?.message };
    };
    const list = async () => {
      const { branch, isBranched } = await store.sessions.get(session);
      const messages = [];
      for await (const page of store.messages.pages({ owner, sessionId, branch, isBranched }))
        messages.push(...page);
      return messages;
    };
    return { ...session, ask, list };
  }

  it(`with ${BRANCHES} branches, a path of them is read without the others`, async () => {
    const { store } = test;
    const { owner, sessionId, ask, list } = await openConversation();
    const { answer } = await ask('first');
    await ask('second');
    for (let i = 0; i < BRANCHES / 2; i++) await ask(`edit ${i}`, { parentId: answer?.id ?? '' });
    // Each of these begins where the one before ended.
    let last = (await ask('deep')).answer;
    for (let i = 0; i < BRANCHES / 2; i++)
      last = (await ask('', { questionId: last?.parent ?? '' })).answer;
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual([
      'first',
      're first',
      `edit ${BRANCHES / 2 - 1}`,
      `re edit ${BRANCHES / 2 - 1}`,
      'deep',
      're ',
    ]);
    expect(messages[2]?.siblings).toHaveLength(BRANCHES / 2 + 1);
    expect(messages.at(-1)?.siblings).toHaveLength(BRANCHES / 2 + 1);
    const { branch } = await store.sessions.get({ owner, sessionId });
    const recent = await store.messages.recent({
      ...{ owner, sessionId, branch, throughTurn: Number.MAX_SAFE_INTEGER, bytes: 1000 },
    });
    expect(recent).toHaveLength(6);
    const back = messages[2]?.siblings?.[0] ?? '';
    expect(await store.sessions.activate({ owner, sessionId, messageId: back })).toBe(true);
    expect((await list()).map(({ content }) => content)).toEqual([
      'first',
      're first',
      'second',
      're second',
    ]);
  });

  it('a path of many branches is read as a whole', async () => {
    const { owner, sessionId, ask, list } = await openConversation();
    let { answer } = await ask('q0');
    const expected = ['q0', 're q0'];
    for (let i = 1; i <= 50; i++) {
      await ask(`left ${i}`);
      answer = (await ask(`q${i}`, { parentId: answer?.id ?? '' })).answer;
      expected.push(`q${i}`, `re q${i}`);
    }
    expect((await list()).map(({ content }) => content)).toEqual(expected);
    const { branch } = await test.store.sessions.get({ owner, sessionId });
    expect(branch).toBe(50);
    const page = await test.store.messages.page({ owner, sessionId, branch, limit: 3 });
    expect('ok' in page && page.ok.messages.map(({ content }) => content)).toEqual(
      expected.slice(-6),
    );
  });
});
