import { describe, expect, it } from 'vitest';
import { createActiveRun } from '../../../test/support/test-active-run.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import { BEFORE_ALL, endOfRun, formatPosition, type Position } from '../../bus/event-bus.js';
import type { Run } from '../../store/runs/run.js';
import { ActiveRun } from '../run/active-run.js';
import { endInterrupted } from '../run/run-end.js';
import type { Turns } from '../turns.js';
import { MissedEvents } from './run-reader.js';

/** Turns of a process that does not execute these runs. */
const elsewhere = { findActive: () => undefined } as Pick<Turns, 'findActive'> as Turns;

/** Turns of a process that executes this run. */
const executing = (live: ActiveRun) =>
  ({
    findActive: ({ owner, runId }) =>
      owner === live.run.owner && runId === live.run.runId ? live : undefined,
  }) as Pick<Turns, 'findActive'> as Turns;

const frame = (seq: number, event: string, data: object) => ({
  seq,
  event,
  data: JSON.stringify(data),
});

describe.each(engines)('MissedEvents on %s', (engine) => {
  const now = Date.now();
  const test = useStore(engine, { clock: () => now });

  async function openSession() {
    const owner = newOwner();
    const { sessionId: id } = await test.store.sessions.create({
      owner,
      oracleDid: 'did:key:zOracle',
    });
    return { owner, sessionId: id };
  }

  /** A run with a text and a routing step in its log. */
  async function startRun(session: { owner: string; sessionId: string }, step: string) {
    const { key } = await startTestRun(test.store, session);
    const payload = { sessionId: session.sessionId, requestId: 'r', step };
    const frames = [frame(1, 'message', { content: 'x' }), frame(2, 'router_update', payload)];
    await flushFrames(test.store.runs, key, frames);
    return key;
  }

  async function missed(session: { owner: string; sessionId: string }, seen: Position) {
    const events: string[] = [];
    for await (const { event, payload, position } of new MissedEvents(
      elsewhere,
      test.store.runs,
    ).after(session, seen))
      events.push(
        `${position && formatPosition(position)} ${'step' in payload ? payload.step : event}`,
      );
    return events;
  }

  it('yields the events after a position, over all turns since', async () => {
    const session = await openSession();
    const turns = 120;
    for (let turn = 1; turn <= turns; turn++) {
      const key = await startRun(session, `${turn}`);
      const done = frame(3, 'done', {});
      await finishTestRun(test.store.runs, key, { status: 'finished', frames: [done] });
    }
    const all = Array.from({ length: turns }, (_, i) => `${i + 1}.2 ${i + 1}`);
    expect(await missed(session, BEFORE_ALL)).toEqual(all);
    expect(await missed(session, { turn: 5, seq: 1 })).toEqual(all.slice(4));
    expect(await missed(session, { turn: 5, seq: 2 })).toEqual(all.slice(5));
    expect(await missed(session, endOfRun({ turn: turns, attempt: 1 }))).toEqual([]);
    expect(await missed({ ...session, owner: newOwner() }, BEFORE_ALL)).toEqual([]);
    const latest = new MissedEvents(elsewhere, test.store.runs).latest(session);
    expect(await latest).toEqual(endOfRun({ turn: turns, attempt: 1 }));
  });

  it('does not parse the texts of answers, which sockets do not receive', async () => {
    const session = await openSession();
    const { key } = await startTestRun(test.store, session);
    const payload = { sessionId: session.sessionId, requestId: 'r', step: 'a' };
    const unreadable = { seq: 1, event: 'message', data: 'not JSON' };
    await flushFrames(test.store.runs, key, [unreadable, frame(2, 'router_update', payload)]);
    expect(await missed(session, BEFORE_ALL)).toEqual(['1.2 a']);
  });

  it('yields one cache invalidation after a crash', async () => {
    const session = await openSession();
    const key = await startRun(session, 'a');
    const heir = await test.another();
    await heir.runs.close((await heir.runs.find(key)) as Run, endInterrupted);
    const changed = '1.1000003 message_cache_invalidation';
    expect(await missed(session, BEFORE_ALL)).toEqual(['1.2 a', changed]);
    for (const seq of [2, 3, 4, 99, 1_000_002])
      expect(await missed(session, { turn: 1, seq })).toEqual([changed]);
    expect(await missed(session, endOfRun({ turn: 1, attempt: 1 }))).toEqual([]);
  });

  it('yields the events of a later attempt after the end of the first', async () => {
    const session = await openSession();
    const key = await startRun(session, 'a');
    const next = await test.store.runs.resume((await test.store.runs.find(key)) as Run, []);
    const payload = { sessionId: session.sessionId, requestId: 'r', step: 'b' };
    const again = { owner: session.owner, runId: next?.runId ?? '' };
    await flushFrames(test.store.runs, again, [frame(1, 'router_update', payload)]);
    const events = ['1.1000000001 b'];
    expect(await missed(session, endOfRun({ turn: 1, attempt: 1 }))).toEqual(events);
    expect(await missed(session, endOfRun({ turn: 1, attempt: 2 }))).toEqual([]);
  });
});

describe('MissedEvents with a run of this process', () => {
  const test = useStore('sqlite');
  const payload = { sessionId: 's', requestId: 'r', step: 'live' };

  it('reads the events that are not stored yet', async () => {
    const { run, session } = await startTestRun(test.store);
    const live = createActiveRun(run);
    live.log.add('message', '{"content":"x"}');
    live.log.add('router_update', JSON.stringify(payload));
    live.log.add('router_update', JSON.stringify(payload));
    const missed = new MissedEvents(executing(live), test.store.runs);
    const positions = async (seen: Position) => {
      const found: unknown[] = [];
      for await (const { position } of missed.after(session, seen)) found.push(position);
      return found;
    };
    expect(await positions(BEFORE_ALL)).toEqual([
      { turn: 1, seq: 2 },
      { turn: 1, seq: 3 },
    ]);
    expect(await positions({ turn: 1, seq: 2 })).toEqual([{ turn: 1, seq: 3 }]);
    expect(await missed.latest(session)).toEqual({ turn: 1, seq: 3 });
  });

  it('the latest position is that of the last stored frame of a run of another host', async () => {
    const { key, session } = await startTestRun(test.store);
    await flushFrames(test.store.runs, key, [frame(1, 'message', {}), frame(2, 'message', {})]);
    const missed = new MissedEvents(elsewhere, test.store.runs);
    expect(await missed.latest(session)).toEqual({ turn: 1, seq: 2 });
    expect(await missed.latest({ ...session, owner: newOwner() })).toEqual(BEFORE_ALL);
  });
});
