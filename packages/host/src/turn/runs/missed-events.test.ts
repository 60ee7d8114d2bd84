import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { BEFORE_ALL, endOf, type Position, positionText } from '../../events/position.js';
import type { Turns } from '../turns.js';
import { endInterrupted } from './interrupted-run.js';
import { MissedEvents } from './missed-events.js';

/** As a process sees runs that it does not carry out itself. */
const elsewhere = { live: () => undefined } as unknown as Turns;

const frame = (seq: number, event: string, data: object) => ({
  seq,
  event,
  data: JSON.stringify(data),
});

describe.each(engines)('what a client missed, on %s', (engine) => {
  let now = Date.now();
  const test = useStore(engine, { clock: () => now });

  async function openAudience() {
    const owner = newOwner();
    const { id } = await test.store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    return { owner, sessionId: id };
  }

  /** A run with a text and a routing step in its log. */
  async function startRun(audience: { owner: string; sessionId: string }, step: string) {
    const message = { content: 'hi' };
    const request = { ...audience, requestId: 'r', status: 'running', message } as const;
    const started = await test.store.runs.start(request);
    if (started.state !== 'started') throw new Error(started.state);
    const key = { owner: audience.owner, runId: started.run.id };
    const told = { sessionId: audience.sessionId, requestId: 'r', step };
    const frames = [frame(1, 'message', { content: 'x' }), frame(2, 'router_update', told)];
    await test.store.runs.appendFrames({ ...key, frames });
    return key;
  }

  async function missed(audience: { owner: string; sessionId: string }, seen: Position) {
    const events: string[] = [];
    for await (const { event, payload, position } of new MissedEvents(
      elsewhere,
      test.store.runs,
    ).after(audience, seen))
      events.push(
        `${position && positionText(position)} ${'step' in payload ? payload.step : event}`,
      );
    return events;
  }

  it('is what the logs hold beyond what it saw, over all turns since', async () => {
    const audience = await openAudience();
    const turns = 120;
    for (let turn = 1; turn <= turns; turn++) {
      const key = await startRun(audience, `${turn}`);
      const done = frame(3, 'done', {});
      await test.store.runs.finish({ ...key, ending: { status: 'finished', frames: [done] } });
    }
    const all = Array.from({ length: turns }, (_, i) => `${i + 1}.2 ${i + 1}`);
    expect(await missed(audience, BEFORE_ALL)).toEqual(all);
    expect(await missed(audience, { turn: 5, seq: 1 })).toEqual(all.slice(4));
    expect(await missed(audience, { turn: 5, seq: 2 })).toEqual(all.slice(5));
    expect(await missed(audience, endOf(turns))).toEqual([]);
    expect(await missed({ ...audience, owner: newOwner() }, BEFORE_ALL)).toEqual([]);
    const latest = new MissedEvents(elsewhere, test.store.runs).latest(audience);
    expect(await latest).toEqual(endOf(turns));
  });

  it('is also that a crash took what it saw, told once', async () => {
    const audience = await openAudience();
    await startRun(audience, 'a');
    const heir = await test.another();
    now += 60_000;
    await heir.runs.closeInterrupted(endInterrupted);
    const changed = `${positionText(endOf(1))} message_cache_invalidation`;
    expect(await missed(audience, BEFORE_ALL)).toEqual(['1.2 a', changed]);
    for (const seq of [2, 3, 4, 99])
      expect(await missed(audience, { turn: 1, seq })).toEqual([changed]);
    expect(await missed(audience, endOf(1))).toEqual([]);
  });
});
