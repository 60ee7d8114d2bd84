import { describe, expect, it } from 'vitest';
import { scale } from '../../../../scripts/test-scale.ts';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
} from '../../test/support/test-runs.js';
import type { TurnOrigin } from './branches.js';
import type { Run } from './runs/run.js';
import type { Store } from './store.js';

const BRANCHES = scale(1_000, 200);

async function openAnother(sessions: Store['sessions'], owner: string) {
  const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  return { owner, sessionId };
}

const after = (message: { readonly id: string } | undefined) => ({ parentId: message?.id ?? '' });

describe.each(engines)('branches of a session on %s', (engine) => {
  const test = useStore(engine);

  /** A session of a new user, or one more of a known one. */
  async function openConversation(knownOwner?: string) {
    const { store } = test;
    const session = knownOwner
      ? await openAnother(store.sessions, knownOwner)
      : await openTestSession(store);
    const { owner, sessionId } = session;
    const start = (content: string, origin?: TurnOrigin) =>
      store.runs.start(createRunRequest({ ...session, message: { content }, origin }));
    const begin = async (content: string, origin?: TurnOrigin) =>
      expectStarted(await start(content, origin));
    const end = (run: Run, content: string) =>
      finishTestRun(store.runs, { owner, runId: run.runId }, { content });
    /** A turn that is answered at once. */
    const ask = async (content: string, origin?: TurnOrigin) => {
      const run = await begin(content, origin);
      return { run, answer: (await end(run, `re ${content}`))?.message };
    };
    const list = async () => {
      const { branch, isBranched } = await store.sessions.get(session);
      const messages = [];
      for await (const page of store.messages.pages({ owner, sessionId, branch, isBranched }))
        messages.push(...page);
      return messages;
    };
    const contents = async () => (await list()).map(({ content }) => content);
    const activate = (messageId = '') => store.sessions.activate({ ...session, messageId });
    const withdraw = (run: Run) => store.runs.withdraw({ owner, runId: run.runId });
    const find = () => store.sessions.get(session);
    return { ...session, start, begin, end, ask, list, contents, activate, withdraw, find };
  }

  it('a path has only messages and siblings of the session', async () => {
    const first = await openConversation();
    const second = await openConversation(first.owner);
    for (const { ask, activate, sessionId } of [first, second]) {
      const { answer } = await ask(`1 of ${sessionId}`);
      await ask('2');
      await ask('edited', after(answer));
      await ask('last');
      await ask('begun again', { parentId: null });
      await activate(answer?.id);
    }
    for (const { list, sessionId } of [first, second]) {
      const messages = await list();
      expect(messages.map(({ content }) => content)).toEqual([
        ...[`1 of ${sessionId}`, `re 1 of ${sessionId}`],
        ...['edited', 're edited', 'last', 're last'],
      ]);
      const siblings = messages.map((message) => message.siblings?.length);
      expect(siblings).toEqual([2, undefined, 2, undefined, undefined, undefined]);
    }
  });

  it('a turn continues the branch of its parent if nothing follows there', async () => {
    const other = await openConversation();
    for (let i = 0; i < 5; i++) await other.ask('long');
    await other.ask('begun again', { parentId: null });
    const { ask, contents, find } = await openConversation(other.owner);
    const first = await ask('1');
    const second = await ask('2');
    await ask('edited', after(first.answer));
    expect(await find()).toMatchObject({ branch: 1 });
    await ask('3', after(second.answer));
    expect(await find()).toMatchObject({ branch: 0 });
    expect(await contents()).toEqual(['1', 're 1', '2', 're 2', '3', 're 3']);
    const empty = await openConversation(other.owner);
    await empty.ask('1', { parentId: null });
    expect(await empty.find()).toMatchObject({ branch: 0, isBranched: false });
  });

  it('a turn does not continue from a message of another session, or from a withdrawn one', async () => {
    const other = await openConversation();
    const { start, begin, activate, withdraw } = await openConversation(other.owner);
    const known = (await other.ask('known')).answer;
    const again = (await other.ask('', { questionId: known?.parent ?? '' })).answer;
    const pending = await other.begin('pending');
    await begin('running');
    const withdrawn = await begin('withdrawn');
    await withdraw(withdrawn);
    const ofOther = [known?.id ?? '', again?.id ?? '', pending.messageId];
    for (const parentId of [...ofOther, withdrawn.messageId, 'nothing']) {
      expect(await start('next', { parentId })).toEqual({ state: 'unknown-message' });
      expect(await activate(parentId)).toBe(false);
    }
    const stranger = { owner: newOwner(), sessionId: other.sessionId };
    for (const messageId of ofOther)
      expect(await test.store.sessions.activate({ ...stranger, messageId })).toBe(false);
  });

  it('a question that is answered again has the open answer of the same turn as a sibling', async () => {
    const other = await openConversation();
    for (const content of ['1', '2']) await other.begin(content);
    const { begin, end, list } = await openConversation(other.owner);
    const first = await begin('1');
    const second = await begin('2');
    const [, question] = await list();
    const again = await begin('', { questionId: question?.id ?? '' });
    for (const run of [first, second, again]) await end(run, 're');
    const answer = (await list()).at(-1);
    expect(answer?.siblings).toEqual([second.messageId, again.messageId]);
  });

  it('SessionStore.activate shows the newest turn of the session behind a message', async () => {
    const other = await openConversation();
    await other.ask('1');
    const base = await other.ask('2');
    for (const content of ['3', '4', '5']) await other.ask(content);
    const last = await other.ask('6');
    await other.ask('edited', after(base.answer));
    await other.begin('open', after(last.answer));
    const { ask, begin, end, withdraw, activate, find, owner } = await openConversation(
      other.owner,
    );
    const first = await ask('1');
    const second = await ask('2');
    const edited = await ask('edited', after(first.answer));
    const shows = async (messageId: string | undefined, branch: number, leaf?: string) => {
      expect(await activate(messageId)).toBe(true);
      expect(await find()).toMatchObject({ owner, branch, activeMessageId: leaf });
    };
    const before = await other.find();
    await shows(second.answer?.parent, 0, second.answer?.id);
    await shows(first.answer?.id, 1, edited.answer?.id);
    expect(await other.find()).toEqual(before);
    const running = await begin('3b');
    await shows(second.answer?.parent, 0, second.answer?.id);
    await shows(first.answer?.id, 1, running.messageId);
    await end(running, 're');
    // A turn that was withdrawn is not the newest one any more.
    const newest = await begin('3', after(second.answer));
    await activate(running.messageId);
    const withdrawn = await begin('4b');
    await withdraw(withdrawn);
    await end(newest, 're');
    await shows(first.answer?.id, 0, newest.messageId);
    await shows(running.messageId, 1, running.messageId);
  });

  it('RunStore.withdraw removes only the branch that the turn began', async () => {
    const other = await openConversation();
    const { begin, end, ask, withdraw, list, find } = await openConversation(other.owner);
    const questionId = (await other.ask('1')).answer?.parent ?? '';
    for (const content of ['2', '3']) await other.ask(content, { questionId });
    const before = await other.list();
    expect(before[1]?.siblings).toHaveLength(3);
    const first = await ask('1');
    const again = await begin('', { questionId: first.answer?.parent ?? '' });
    await withdraw(await begin('follows'));
    expect(await find()).toMatchObject({ branch: 1, activeMessageId: again.messageId });
    const next = await begin('2');
    await withdraw(await begin('edited', { parentId: again.messageId }));
    for (const run of [again, next]) await end(run, 're');
    const messages = await list();
    expect(messages.map(({ content }) => content)).toEqual(['1', 're', '2', 're']);
    expect(messages[1]?.siblings).toEqual([first.answer?.id, again.messageId]);
    expect(messages[2]?.siblings).toBeUndefined();
    expect(await other.list()).toEqual(before);
  });

  it('RunStore.withdraw lets what follows continue from what was before', async () => {
    const { begin, withdraw, activate, list } = await openConversation();
    const first = await begin('1');
    const withdrawn = await begin('withdrawn');
    const second = await begin('2');
    const third = await begin('3');
    const edited = await begin('2b', { parentId: withdrawn.messageId });
    await begin('2c', { parentId: first.messageId });
    await begin('begun again', { parentId: null });
    await withdraw(withdrawn);
    await activate(third.messageId);
    const messages = await list();
    expect(messages.map(({ content, parent }) => [content, parent])).toEqual([
      ['1', undefined],
      ['2', first.messageId],
      ['3', second.messageId],
    ]);
    expect(messages.map(({ siblings }) => siblings?.length)).toEqual([2, 3, undefined]);
    await activate(edited.messageId);
    expect((await list()).map(({ content }) => content)).toEqual(['1', '2b']);
  });

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
      ...{ owner, sessionId, branch, throughTurn: Number.MAX_SAFE_INTEGER, bytes: 10_000 },
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

  it('a path ends, also if its branches were forged to lead back to each other', async () => {
    const { owner, sessionId, ask, activate } = await openConversation();
    const { answer } = await ask('first');
    const forged = [1, 2].map((branch) => ({
      ...{ session_id: sessionId, branch, base_branch: 3 - branch, base_turn: 9, base_seq: 9 },
      ...{ parent_id: '', original_id: null, first_id: `first-${branch}` },
    }));
    expect(await test.store.imports.insert(owner, 'branches', forged)).toBe(2);
    expect(await activate(answer?.id)).toBe(true);
    const path = { owner, sessionId, branch: 1, limit: 3 };
    expect(await test.store.messages.page(path)).toMatchObject({ ok: { messages: [] } });
  });
});
