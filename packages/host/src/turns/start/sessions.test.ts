import { statfsSync } from 'node:fs';
import { generateSigner } from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../../test/support/test-runs.js';
import { OracleIdentity } from '../../auth/oracle-identity.js';
import { MemoryEventBus, type SessionKey } from '../../bus/event-bus.js';
import { MemoryHostBus } from '../../bus/host-bus.js';
import { SessionChanges } from '../../bus/session-changes.js';
import { DiskSpace } from '../../store/disk-space.js';
import { StoreError } from '../../store/store-errors.js';
import type { Turns } from '../turns.js';
import { SessionsService } from './sessions.js';

const oracle = new OracleIdentity('Pythia', 'did:ixo:entity', generateSigner());

describe('SessionsService', () => {
  const test = useStore('sqlite');
  afterEach(() => void vi.restoreAllMocks());

  /** The service for a new user, with what it reports. */
  function open({ maxPerUser = 10, minFreeBytes = 0 } = {}) {
    const owner = newOwner();
    const { sessions, messages } = test.store;
    const steps: string[] = [];
    const events = new MemoryEventBus();
    const changes = new SessionChanges(new MemoryHostBus('host', pino({ level: 'silent' })));
    changes.subscribe(owner, ({ change, sessionId }) => steps.push(`${change} ${sessionId}`));
    const turns = {
      assertPromptFor: async () => undefined,
      interruptAll: async ({ sessionId }: SessionKey) => {
        const isThere = (await sessions.find({ owner, sessionId })) !== undefined;
        steps.push(`interrupted ${sessionId}${isThere ? '' : ', which is gone'}`);
      },
    } as unknown as Turns;
    const disk = minFreeBytes > 0 ? new DiskSpace(test.options.dataDir, minFreeBytes) : undefined;
    const charge = async () => {};
    const own = { sessions, messages, oracle, turns, events, changes, charge };
    const deps = { ...own, maxPerUser, disk };
    return { owner, service: new SessionsService(deps), events, steps };
  }

  /** A session with one answer. */
  async function converse(options: Parameters<typeof open>[0] = {}) {
    const opened = open(options);
    const { sessionId } = await opened.service.open({ owner: opened.owner, title: 'Title' });
    const key = { owner: opened.owner, sessionId };
    const { key: run } = await startTestRun(test.store, key);
    const answer = (await finishTestRun(test.store.runs, run, { content: 'Hello' }))?.message;
    if (!answer?.parent) throw new Error('no answer');
    opened.steps.splice(0);
    return { ...opened, key, sessionId, answerId: answer.id, questionId: answer.parent };
  }

  const list = async (owner: string) =>
    (await test.store.sessions.list({ owner, limit: 10, offset: 0 })).sessions.map(
      ({ sessionId: id }) => id,
    );

  it('open creates a session with this oracle, and reports it', async () => {
    const { owner, service, steps } = open();
    const session = await service.open({ owner, title: 'Plans' });
    expect(session).toMatchObject({
      owner,
      title: 'Plans',
      oracleDid: oracle.did,
      oracleName: 'Pythia',
      oracleEntityDid: 'did:ixo:entity',
    });
    expect(await list(owner)).toEqual([session.sessionId]);
    expect(steps).toEqual([`created ${session.sessionId}`]);
  });

  it('open creates sessions that are not listed, and those of threads once', async () => {
    const { owner, service } = open();
    const { sessionId: id } = await service.open({ owner, isUnlisted: true });
    expect(await list(owner)).toEqual([]);
    expect(await test.store.sessions.isUnlisted({ owner, sessionId: id })).toBe(true);
    const thread = { surface: 'chat', threadId: 't1' };
    const first = await service.open({ owner, thread });
    expect((await service.open({ owner, thread })).sessionId).toBe(first.sessionId);
  });

  it('open and fork refuse more sessions than a user may have', async () => {
    const { service, key, answerId, steps, owner } = await converse({ maxPerUser: 1 });
    const tooMany = { code: 'too_many_sessions' };
    await expect(service.open({ owner })).rejects.toMatchObject(tooMany);
    await expect(service.fork(key, { messageId: answerId })).rejects.toMatchObject(tooMany);
    expect(steps).toEqual([]);
    expect(await service.open({ owner: newOwner() })).toMatchObject({ oracleDid: oracle.did });
  });

  it('open refuses a session while the disk is full', async () => {
    const { owner, service, steps } = open({ minFreeBytes: Number.MAX_SAFE_INTEGER });
    await expect(service.open({ owner })).rejects.toMatchObject({ code: 'disk_full' });
    expect([await list(owner), steps]).toEqual([[], []]);
    const roomy = open({ minFreeBytes: 1 });
    await roomy.service.open({ owner: roomy.owner });
  });

  it('rename changes the title of a session of the user, and reports it', async () => {
    const { service, key, sessionId, steps } = await converse();
    await service.rename(key, 'Better');
    expect(await test.store.sessions.get(key)).toMatchObject({ title: 'Better' });
    expect(steps).toEqual([`renamed ${sessionId}`]);
    const foreign = service.rename({ ...key, owner: newOwner() }, 'Mine');
    await expect(foreign).rejects.toMatchObject({ code: 'session_not_found' });
    expect(await test.store.sessions.get(key)).toMatchObject({ title: 'Better' });
    expect(steps).toHaveLength(1);
  });

  it('activate switches to another path, and makes pages read it again', async () => {
    const { service, key, sessionId, answerId, questionId, events, steps } = await converse();
    const { key: run } = await startTestRun(test.store, { ...key, origin: { questionId } });
    const again = (await finishTestRun(test.store.runs, run, { content: 'Hi' }))?.message.id;
    expect(await test.store.sessions.get(key)).toMatchObject({ activeMessageId: again });
    const seen: unknown[] = [];
    events.subscribe(key, (event) => seen.push(event));
    await service.activate(key, answerId, 'r7');
    expect(await test.store.sessions.get(key)).toMatchObject({ activeMessageId: answerId });
    const payload = { sessionId, requestId: 'r7', status: 'done' };
    expect(seen).toEqual([{ event: 'message_cache_invalidation', payload }]);
    expect(steps).toEqual([`switched ${sessionId}`]);
  });

  it('activate refuses an unknown session or message', async () => {
    const { service, key, answerId, events, steps } = await converse();
    const seen: unknown[] = [];
    events.subscribe(key, (event) => seen.push(event));
    const foreign = service.activate({ ...key, owner: newOwner() }, answerId, 'r');
    await expect(foreign).rejects.toMatchObject({ code: 'session_not_found' });
    const unknown = service.activate(key, 'm9', 'r');
    await expect(unknown).rejects.toMatchObject({ code: 'message_not_found' });
    expect([seen, steps]).toEqual([[], []]);
  });

  it('fork copies the path up to a message', async () => {
    const { service, owner, key, sessionId, questionId, answerId, steps } = await converse();
    const copy = await service.fork(key, { messageId: questionId, title: 'Copy' });
    expect(copy).toMatchObject({ owner, title: 'Copy', oracleName: 'Pythia' });
    expect(copy.sessionId).not.toBe(sessionId);
    const whole = await service.fork(key, { messageId: answerId });
    expect(whole).toMatchObject({ title: 'Title' });
    const read = async (id: string) => {
      const pages: string[] = [];
      const { branch } = await test.store.sessions.get({ owner, sessionId: id });
      for await (const page of test.store.messages.pages({ owner, sessionId: id, branch }))
        pages.push(...page.map(({ content }) => content));
      return pages;
    };
    expect([await read(copy.sessionId), await read(whole.sessionId)]).toEqual([
      ['hi'],
      ['hi', 'Hello'],
    ]);
    // It is the session as it is after the copy.
    expect(whole.activeMessageId).toEqual(expect.any(String));
    expect(steps).toEqual([`created ${copy.sessionId}`, `created ${whole.sessionId}`]);
  });

  it('fork leaves the space free that uploads leave for messages', async () => {
    const { bavail, bsize } = statfsSync(test.options.dataDir);
    const { service, key, answerId } = await converse({ minFreeBytes: bavail * bsize * 0.7 });
    const refused = service.fork(key, { messageId: answerId });
    await expect(refused).rejects.toMatchObject({ code: 'disk_full' });
  });

  it('fork refuses an unknown session, and a message of another session', async () => {
    const { service, key, answerId, owner, steps } = await converse();
    const foreign = service.fork({ ...key, owner: newOwner() }, { messageId: answerId });
    await expect(foreign).rejects.toMatchObject({ code: 'session_not_found' });
    const { sessionId: id } = await service.open({ owner });
    const unknown = { code: 'message_not_found' };
    const other = service.fork({ owner, sessionId: id }, { messageId: answerId });
    await expect(other).rejects.toMatchObject(unknown);
    await expect(service.fork(key, { messageId: 'm9' })).rejects.toMatchObject(unknown);
    expect(steps).toEqual([`created ${id}`]);
  });

  it('fork leaves no session behind if the messages cannot be copied', async () => {
    const { service, key, answerId, owner, sessionId, steps } = await converse();
    vi.spyOn(test.store.messages, 'copy').mockRejectedValue(new Error('disk'));
    await expect(service.fork(key, { messageId: answerId })).rejects.toThrow('disk');
    expect(await list(owner)).toEqual([sessionId]);
    vi.spyOn(test.store.sessions, 'delete').mockRejectedValue(new Error('also this'));
    await expect(service.fork(key, { messageId: answerId })).rejects.toThrow('disk');
    expect(steps).toEqual([]);
  });

  it('fork that ends in the middle leaves no session in the list', async () => {
    const { service, key, answerId, owner, sessionId, steps } = await converse();
    vi.spyOn(test.store.messages, 'copy').mockReturnValue(new Promise(() => undefined));
    void service.fork(key, { messageId: answerId });
    await vi.waitFor(async () => expect(test.store.messages.copy).toHaveBeenCalled());
    expect([await list(owner), steps]).toEqual([[sessionId], []]);
    // Nor does it keep the user from opening another one.
    const opened = await test.store.sessions.createWithin(2, { owner, oracleDid: oracle.did });
    expect(opened).toBeDefined();
  });

  it('fork reports the limit of sessions if another one takes the place of the copy', async () => {
    const { service, key, answerId, owner } = await converse({ maxPerUser: 2 });
    const { copy } = test.store.messages;
    vi.spyOn(test.store.messages, 'copy').mockImplementation(async (...args) => {
      await service.open({ owner });
      return copy.apply(test.store.messages, args);
    });
    const forking = service.fork(key, { messageId: answerId });
    await expect(forking).rejects.toMatchObject({ code: 'too_many_sessions' });
    expect(await list(owner)).toHaveLength(2);
  });

  it('remove ends the turns of a session, deletes it, and closes its sockets', async () => {
    const { service, key, sessionId, owner, events, steps } = await converse();
    const seen: unknown[] = [];
    events.subscribe(key, (event) => seen.push(event));
    await service.remove(key);
    expect(await list(owner)).toEqual([]);
    expect(steps).toEqual([`interrupted ${sessionId}`, `deleted ${sessionId}`]);
    expect(seen).toMatchObject([
      { event: 'closing', payload: { reason: 'session_deleted', sessionId } },
    ]);
  });

  it('remove reports a deletion whose reply was lost', async () => {
    const { service, key, sessionId, owner, steps } = await converse();
    const { sessions } = test.store;
    const deletes = sessions.delete.bind(sessions);
    const lost = new StoreError('Connection terminated unexpectedly');
    vi.spyOn(sessions, 'delete').mockRejectedValueOnce(lost);
    await expect(service.remove(key)).rejects.toBe(lost);
    vi.spyOn(sessions, 'delete').mockImplementationOnce(async () => {
      await deletes(key);
      throw lost;
    });
    await service.remove(key);
    expect(await list(owner)).toEqual([]);
    expect(steps.at(-1)).toBe(`deleted ${sessionId}`);
  });

  it.each(['unknown', 'not an id!', 'x'.repeat(1000)])('remove refuses the id %s', async (id) => {
    const { service, owner, steps } = await converse();
    const removed = service.remove({ owner, sessionId: id });
    await expect(removed).rejects.toMatchObject({ code: 'session_not_found' });
    expect(await list(owner)).toHaveLength(1);
    expect(steps).toEqual([`interrupted ${id}, which is gone`]);
  });

  it('remove does not delete the session of another user', async () => {
    const { service, key, owner } = await converse();
    const removed = service.remove({ ...key, owner: newOwner() });
    await expect(removed).rejects.toMatchObject({ code: 'session_not_found' });
    expect(await list(owner)).toHaveLength(1);
  });
});
