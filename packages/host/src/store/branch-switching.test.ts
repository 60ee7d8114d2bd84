import { describe, expect, it } from 'vitest';
import { readRows } from '../../test/support/stored-rows.js';
import { newOwner, useStore } from '../../test/support/test-database.js';
import {
  copySession,
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
} from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';
import type { Run } from './runs/run.js';

const test = useStore('sqlite');

/** A session with functions for its turns. */
async function openConversation(known?: { owner: string; sessionId: string }) {
  const { runs, sessions, messages } = test.store;
  const session = known ?? (await openTestSession(test.store));
  const { owner } = session;
  const begin = async (content: string, origin?: TurnOrigin): Promise<Run> =>
    expectStarted(await runs.start(createRunRequest({ ...session, message: { content }, origin })));
  const end = (run: Run, content: string) =>
    finishTestRun(runs, { owner, runId: run.runId }, { content });
  /** A turn that is answered at once; the ids of its question and its answer. */
  const ask = async (content: string, origin?: TurnOrigin, answer = `re ${content}`) => {
    const ended = await end(await begin(content, origin), answer);
    return { questionId: ended?.message.parent ?? '', answerId: ended?.message.id ?? '' };
  };
  const list = async () => {
    const { branch, isBranched } = await sessions.get(session);
    const result = await messages.page({ ...session, branch, isBranched, limit: 100 });
    return 'ok' in result ? result.ok.messages : [];
  };
  const read = async () => (await list()).map(({ content }) => content).join(', ');
  const show = async (messageId: string) => {
    expect(await sessions.activate({ ...session, messageId })).toBe(true);
    return read();
  };
  const find = () => sessions.get(session);
  const withdraw = (run: Run) => runs.withdraw({ owner, runId: run.runId });
  return { ...session, begin, end, ask, list, read, show, find, withdraw };
}

describe('switching to a message', () => {
  it('shows the answer that was chosen, and the newest one behind a question', async () => {
    const { ask, show, find } = await openConversation();
    const first = await ask('q1', undefined, 'a1');
    const again = await ask('', { questionId: first.questionId }, 'b1');
    expect(await show(first.answerId)).toBe('q1, a1');
    expect(await find()).toMatchObject({ branch: 0, activeMessageId: first.answerId });
    expect(await show(again.answerId)).toBe('q1, b1');
    expect(await show(first.answerId)).toBe('q1, a1');
    expect(await show(first.questionId)).toBe('q1, b1');
    expect(await find()).toMatchObject({ branch: 1, activeMessageId: again.answerId });
  });

  it('shows the newest turn behind it, also on a branch of a branch', async () => {
    const { ask, show } = await openConversation();
    const first = await ask('1');
    const second = await ask('2');
    const edited = await ask('2b', { parentId: first.answerId });
    const third = await ask('3b');
    await ask('3c', { parentId: edited.answerId });
    expect(await show(first.questionId)).toBe('1, re 1, 2b, re 2b, 3c, re 3c');
    expect(await show(third.answerId)).toBe('1, re 1, 2b, re 2b, 3b, re 3b');
    expect(await show(edited.questionId)).toBe('1, re 1, 2b, re 2b, 3c, re 3c');
    expect(await show(second.questionId)).toBe('1, re 1, 2, re 2');
    // A turn on an older branch is newer now.
    await ask('3');
    expect(await show(first.answerId)).toBe('1, re 1, 2, re 2, 3, re 3');
    expect(await show(edited.answerId)).toBe('1, re 1, 2b, re 2b, 3c, re 3c');
  });

  it('does not show a branch that began before it, or at the beginning of the session', async () => {
    const { ask, show } = await openConversation();
    const first = await ask('1');
    const second = await ask('2');
    const third = await ask('3');
    await ask('2b', { parentId: first.answerId });
    await ask('0', { parentId: null });
    const whole = '1, re 1, 2, re 2, 3, re 3';
    expect(await show(second.answerId)).toBe(whole);
    expect(await show(second.questionId)).toBe(whole);
    expect(await show(third.questionId)).toBe(whole);
    expect(await show(first.answerId)).toBe('1, re 1, 2b, re 2b');
  });

  it('shows a branch that begins at a later turn than it', async () => {
    const { ask, show } = await openConversation();
    const first = await ask('1');
    const second = await ask('2');
    await ask('3');
    await ask('3b', { parentId: second.answerId });
    expect(await show(first.answerId)).toBe('1, re 1, 2, re 2, 3b, re 3b');
    expect(await show(second.answerId)).toBe('1, re 1, 2, re 2, 3b, re 3b');
  });

  it('shows the answer that is being written, and the branch that waits', async () => {
    const { ask, begin, end, show, find } = await openConversation();
    const first = await ask('1');
    await ask('2');
    const running = await begin('2b', { parentId: first.answerId });
    const waiting = await begin('2c', { parentId: first.answerId });
    expect(await show(running.messageId)).toBe('1, re 1, 2b');
    expect(await find()).toMatchObject({ branch: 1, activeMessageId: running.messageId });
    expect(await show(first.answerId)).toBe('1, re 1, 2c');
    expect(await find()).toMatchObject({ branch: 2, activeMessageId: waiting.messageId });
    await end(running, 're 2b');
    expect(await show(running.messageId)).toBe('1, re 1, 2b, re 2b');
  });

  it('knows only messages of the session, also if it has branches', async () => {
    const { ask, owner, sessionId, read } = await openConversation();
    await ask('1');
    await ask('2', { parentId: null });
    const { sessions } = test.store;
    expect(await sessions.activate({ owner, sessionId, messageId: 'unknown' })).toBe(false);
    expect(await sessions.activate({ owner, sessionId: 'unknown', messageId: 'unknown' })).toBe(
      false,
    );
    expect(await read()).toBe('2, re 2');
  });

  it('ignores the branches and turns of another user with the same session', async () => {
    const mine = await openConversation();
    const theirs = await openConversation(await copySession(test.store, newOwner(), mine));
    const first = await mine.ask('1');
    await mine.ask('2');
    const edited = await mine.ask('2b', { parentId: first.answerId });
    for (const content of ['a', 'b', 'c', 'd', 'e']) await theirs.ask(content);
    await theirs.begin('f');
    const before = await theirs.find();
    const newest = '1, re 1, 2b, re 2b';
    expect(await mine.show(first.answerId)).toBe(newest);
    await theirs.begin('again', { parentId: null });
    expect(await mine.show(first.answerId)).toBe(newest);
    expect(await mine.find()).toMatchObject({ branch: 1, activeMessageId: edited.answerId });
    expect(await theirs.find()).toMatchObject({ branch: 1, title: before.title });
    const { owner, sessionId } = theirs;
    const foreign = { owner, sessionId, messageId: first.answerId };
    expect(await test.store.sessions.activate(foreign)).toBe(false);
  });
});

describe('a turn that continues from an earlier message', () => {
  it('has all that was said up to there, also from an answer that is being written', async () => {
    const { ask, begin, end, read } = await openConversation();
    await ask('1');
    const running = await begin('2');
    const next = await begin('3');
    const other = await begin('3b', { parentId: running.messageId });
    for (const run of [running, next, other]) await end(run, `re ${run.turn}`);
    expect(await read()).toBe('1, re 1, 2, re 2, 3b, re 4');
  });

  it('continues the last answer of a branch without a new branch, but not twice', async () => {
    const { ask, find, list } = await openConversation();
    const first = await ask('1');
    const second = await ask('2', { parentId: first.answerId });
    expect(await find()).toMatchObject({ branch: 0, isBranched: false });
    const edited = await ask('2b', { parentId: first.answerId });
    expect(await find()).toMatchObject({ branch: 1, isBranched: true });
    const third = await ask('2c', { parentId: first.answerId });
    expect(await find()).toMatchObject({ branch: 2 });
    expect((await list())[2]?.siblings).toEqual([
      second.questionId,
      edited.questionId,
      third.questionId,
    ]);
  });

  it('answers a question that has no answer and waits for none', async () => {
    const { owner, sessionId, ask, list } = await openConversation();
    const question = { type: 'human', content: 'left', requestId: 'r', isComplete: true } as const;
    const left = await test.store.messages.append({ owner, sessionId, ...question });
    const { answerId } = await ask('', { questionId: left?.id ?? '' }, 'at last');
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual(['left', 'at last']);
    expect(messages[1]).toMatchObject({ id: answerId, parent: left?.id });
    expect(messages[1]?.siblings).toBeUndefined();
  });

  it('begins the session again beside its first question', async () => {
    const { ask, list, read } = await openConversation();
    const first = await ask('1', { parentId: null });
    const second = await ask('2', { parentId: null });
    const third = await ask('3', { parentId: null });
    expect(await read()).toBe('3, re 3');
    const [question] = await list();
    expect(question?.parent).toBeUndefined();
    expect(question?.siblings).toEqual([first.questionId, second.questionId, third.questionId]);
  });
});

describe('a turn that is withdrawn', () => {
  it('gives the place back to what was shown before it', async () => {
    const { ask, begin, withdraw, read, find } = await openConversation();
    await ask('1');
    const running = await begin('2');
    await withdraw(await begin('3'));
    expect(await find()).toMatchObject({ branch: 0, activeMessageId: running.messageId });
    await withdraw(await begin('0', { parentId: null }));
    expect(await find()).toMatchObject({ branch: 0, activeMessageId: running.messageId });
    expect(await read()).toBe('1, re 1, 2');
  });

  it('returns to the answer that it would have replaced', async () => {
    const { ask, begin, withdraw, find, list } = await openConversation();
    const first = await ask('1');
    const second = await ask('2');
    await begin('3');
    await withdraw(await begin('', { questionId: first.questionId }));
    expect(await find()).toMatchObject({ branch: 0 });
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual(['1', 're 1', '2', 're 2', '3']);
    expect(messages.map(({ siblings }) => siblings)).toEqual(Array(5).fill(undefined));
    expect(messages[3]?.id).toBe(second.answerId);
  });

  it('does not change what is shown if that is another branch', async () => {
    const { ask, begin, withdraw, show, find } = await openConversation();
    const first = await ask('1');
    const running = await begin('2');
    const edited = await begin('2b', { parentId: first.answerId });
    await show(running.messageId);
    const before = await find();
    await withdraw(edited);
    expect(await find()).toMatchObject({ branch: 0, activeMessageId: before.activeMessageId });
  });

  it('lets its branch begin with the next message of it', async () => {
    const { ask, begin, end, withdraw, list, find } = await openConversation();
    const first = await ask('1');
    const running = await begin('2');
    const withdrawn = await begin('2b', { parentId: first.answerId });
    const next = await begin('3b');
    await withdraw(withdrawn);
    expect(await find()).toMatchObject({ branch: 1, activeMessageId: next.messageId });
    for (const run of [running, next]) await end(run, 're');
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual(['1', 're 1', '3b', 're']);
    expect(messages[2]?.parent).toBe(first.answerId);
    expect(messages[2]?.siblings).toHaveLength(2);
    expect(messages[2]?.siblings?.[1]).toBe(messages[2]?.id);
  });

  it('is not a sibling of what was asked instead of it', async () => {
    const { ask, begin, end, withdraw, list } = await openConversation();
    const first = await ask('1');
    const running = await begin('2');
    const withdrawn = await begin('3');
    const edited = await begin('3b', { parentId: running.messageId });
    await withdraw(withdrawn);
    for (const run of [running, edited]) await end(run, 're');
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual(['1', 're 1', '2', 're', '3b', 're']);
    expect(messages[4]?.siblings).toBeUndefined();
    expect(messages[2]?.parent).toBe(first.answerId);
  });
});

describe('a turn that is withdrawn while others depend on it', () => {
  const toContents = (messages: readonly { readonly content: string }[]) =>
    messages.map(({ content }) => content);

  it('leaves its question to the turn that answers it again', async () => {
    const { ask, begin, end, withdraw, list, show } = await openConversation();
    await ask('1');
    const running = await begin('2');
    const withdrawn = await begin('3');
    const question = (await list()).at(-1);
    const again = await begin('3', { questionId: question?.id ?? '' });
    expect(await show(withdrawn.messageId)).toBe('1, re 1, 2, 3');
    expect(await withdraw(withdrawn)).toMatchObject({ state: 'withdrawn' });
    await end(running, 're 2');
    await end(again, 're 3');
    const messages = await list();
    expect(toContents(messages)).toEqual(['1', 're 1', '2', 're 2', '3', 're 3']);
    expect(messages[5]).toMatchObject({ id: again.messageId, parent: question?.id });
    expect(messages.map(({ siblings }) => siblings)).toEqual(Array(6).fill(undefined));
  });

  it('of two turns that answer a question, the last one that is withdrawn takes it along', async () => {
    const { ask, begin, withdraw, list, read } = await openConversation();
    await ask('1');
    await begin('2');
    const first = await begin('3');
    const again = await begin('3', { questionId: (await list()).at(-1)?.id ?? '' });
    await withdraw(again);
    expect(await read()).toBe('1, re 1, 2, 3');
    await withdraw(first);
    expect(await read()).toBe('1, re 1, 2');
  });

  it('of two turns that answer a question, the second takes it along if it is withdrawn last', async () => {
    const { ask, begin, end, withdraw, list, read } = await openConversation();
    await ask('1');
    const running = await begin('2');
    const first = await begin('3');
    const questionId = (await list()).at(-1)?.id ?? '';
    const again = await begin('3', { questionId });
    const third = await begin('3', { questionId });
    const next = await begin('4');
    await withdraw(first);
    await withdraw(again);
    expect(await read()).toBe('1, re 1, 2, 3, 4');
    await withdraw(third);
    expect(await read()).toBe('1, re 1, 2, 4');
    await end(running, 're 2');
    await end(next, 're 4');
    expect((await list())[4]?.parent).toBe(running.messageId);
    expect(await read()).toBe('1, re 1, 2, re 2, 4, re 4');
  });

  it('what follows an answer that is not given again continues from its question', async () => {
    const { ask, begin, end, withdraw, list } = await openConversation();
    const first = await ask('1');
    const running = await begin('2');
    const withdrawn = await begin('', { questionId: first.questionId });
    const next = await begin('3');
    await withdraw(withdrawn);
    await end(running, 're 2');
    await end(next, 're 3');
    const messages = await list();
    expect(toContents(messages)).toEqual(['1', '3', 're 3']);
    expect(messages[1]?.parent).toBe(first.questionId);
    expect(messages[1]?.siblings).toEqual([first.answerId, messages[1]?.id]);
  });

  it('what follows its question continues from what was before it', async () => {
    const { ask, begin, end, withdraw, list } = await openConversation();
    await ask('1');
    const running = await begin('2');
    const withdrawn = await begin('3');
    const parentId = (await list()).at(-1)?.id ?? '';
    const next = await begin('4', { parentId });
    await withdraw(withdrawn);
    await end(running, 're 2');
    await end(next, 're 4');
    const messages = await list();
    expect(toContents(messages)).toEqual(['1', 're 1', '2', 're 2', '4', 're 4']);
    expect(messages[4]?.parent).toBe(running.messageId);
  });
});

describe('sessions of two users with the same id', () => {
  async function openBoth() {
    const mine = await openConversation();
    const theirs = await openConversation(await copySession(test.store, newOwner(), mine));
    return { mine, theirs };
  }

  it('a turn continues the last answer of its user, however much the other has said', async () => {
    const { mine, theirs } = await openBoth();
    for (const content of ['a', 'b', 'c']) await theirs.ask(content);
    const { answerId } = await mine.ask('1');
    await mine.ask('2', { parentId: answerId });
    expect(await mine.find()).toMatchObject({ branch: 0, isBranched: false });
    expect(await mine.read()).toBe('1, re 1, 2, re 2');
  });

  it('the first turn begins no branch, also if the other has begun the session again', async () => {
    const { mine, theirs } = await openBoth();
    for (const content of ['a', 'b']) await theirs.ask(content, { parentId: null });
    expect(await theirs.find()).toMatchObject({ branch: 1, isBranched: true });
    await mine.ask('1', { parentId: null });
    expect(await mine.find()).toMatchObject({ branch: 0, isBranched: false });
  });

  it('an answer that the other waits for is not a sibling of one in the same turn', async () => {
    const { mine, theirs } = await openBoth();
    const question = { type: 'human', content: 'left', requestId: 'r', isComplete: true } as const;
    const { owner, sessionId } = mine;
    const left = await test.store.messages.append({ ...question, owner, sessionId });
    expect((await theirs.begin('a')).turn).toBe(left?.turn);
    await mine.ask('', { questionId: left?.id ?? '' }, 'at last');
    const messages = await mine.list();
    expect(messages.map(({ content }) => content)).toEqual(['left', 'at last']);
    expect(messages[1]?.siblings).toBeUndefined();
  });

  it('a turn that is withdrawn leaves the copies of its session as they are', async () => {
    const { mine, theirs } = await openBoth();
    const { sessions, imports } = test.store;
    const { owner } = mine;
    const copy = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const running = await mine.begin('1');
    const withdrawn = await mine.begin('2');
    await mine.begin('3');
    await mine.begin('3b', { parentId: withdrawn.messageId });
    await mine.begin('2b', { parentId: running.messageId });
    for (const name of ['messages', 'branches']) {
      const rows = await readRows(test.store, name, owner);
      expect(await imports.insert(theirs.owner, name, rows)).toBe(rows.length);
      const copied = rows.map((row) => ({
        ...row,
        id: `copy ${row.id}`,
        session_id: copy.sessionId,
      }));
      expect(await imports.insert(owner, name, copied)).toBe(rows.length);
    }
    const readCopies = async () => {
      const names = ['messages', 'branches'];
      const foreign = await Promise.all(
        names.map((name) => readRows(test.store, name, theirs.owner)),
      );
      const own = (
        await Promise.all(names.map((name) => readRows(test.store, name, owner)))
      ).flat();
      return { foreign, own: own.filter(({ session_id }) => session_id === copy.sessionId) };
    };
    const before = await readCopies();
    expect(before.own).toHaveLength(5 + 2);
    expect(await mine.withdraw(withdrawn)).toMatchObject({ state: 'withdrawn' });
    expect(await readCopies()).toEqual(before);
    const changed = await readRows(test.store, 'branches', owner);
    expect(changed.filter((row) => row.session_id === mine.sessionId)).toMatchObject([
      { branch: 1, parent_id: running.messageId },
      { branch: 2, parent_id: running.messageId, original_id: null },
    ]);
  });

  it('a turn that is withdrawn returns to what its own session has, not to that of a copy', async () => {
    const mine = await openConversation();
    const { owner } = mine;
    const { imports } = test.store;
    const first = await mine.ask('1');
    const running = await mine.begin('2');
    const withdrawn = await mine.begin('2b', { parentId: first.answerId });
    // Before the session itself in the order of ids.
    for (const row of await readRows(test.store, 'sessions', owner))
      await imports.insert(owner, 'sessions', [{ ...row, id: '0' }]);
    const changes = { session_id: '0', original_id: 'unknown' };
    for (const row of await readRows(test.store, 'branches', owner))
      expect(await imports.insert(owner, 'branches', [{ ...row, ...changes }])).toBe(1);
    await mine.withdraw(withdrawn);
    expect(await mine.find()).toMatchObject({ branch: 0, activeMessageId: running.messageId });
  });
});
