import { describe, expect, it } from 'vitest';
import { ReaderSlots } from './reader-slots.js';

const { signal } = new AbortController();
const limits = { total: 4, perUser: 2, perHomeserver: 3, waiting: 100 };

/** Starts work that runs until it is ended; `started` is true once it has a slot. */
function start(slots: ReaderSlots, user: string, homeserver = user, stop = signal) {
  const end = Promise.withResolvers<void>();
  const work = { started: false, end: end.resolve, done: Promise.resolve() };
  work.done = slots.run({ user, homeserver }, stop, () => {
    work.started = true;
    return end.promise;
  });
  return work;
}

const settled = () => new Promise(setImmediate);

describe('ReaderSlots', () => {
  it('gives a user, a homeserver and all together no more than their slots', async () => {
    const slots = new ReaderSlots(limits);
    const ofAlice = [1, 2, 3].map(() => start(slots, 'alice', 'a'));
    const sameServer = [start(slots, 'bob', 'a'), start(slots, 'carol', 'a')];
    const others = [start(slots, 'dave', 'd'), start(slots, 'erin', 'e')];
    await settled();
    const started = (works: { started: boolean }[]) => works.map((work) => work.started);
    expect(started(ofAlice)).toEqual([true, true, false]);
    expect(started(sameServer)).toEqual([true, false]);
    expect(started(others)).toEqual([true, false]);
    expect([slots.active, slots.waiting]).toEqual([4, 3]);
    ofAlice[0]?.end();
    await settled();
    // Erin and Carol hold none, Alice holds one; Carol waits longest.
    expect([...started(sameServer), ...started(others)]).toEqual([true, true, true, false]);
    for (const work of [...ofAlice, ...sameServer, ...others]) work.end();
    await Promise.all([...ofAlice, ...sameServer, ...others].map(({ done }) => done));
    expect([slots.active, slots.waiting]).toEqual([0, 0]);
  });

  it('starts everyone whom one slot makes room for', async () => {
    const slots = new ReaderSlots({ total: 4, perUser: 1, perHomeserver: 1, waiting: 10 });
    const first = start(slots, 'alice', 'a');
    const sameUser = start(slots, 'alice', 'b');
    const sameServer = start(slots, 'bob', 'a');
    first.end();
    await first.done;
    await settled();
    expect([sameUser.started, sameServer.started]).toEqual([true, true]);
    sameUser.end();
    sameServer.end();
  });

  it('frees the slot of work that fails, and the place of those who stop waiting', async () => {
    const slots = new ReaderSlots({ ...limits, total: 1 });
    const failing = slots.run({ user: 'a', homeserver: 'a' }, signal, async () => {
      throw new Error('broken');
    });
    await expect(failing).rejects.toThrow('broken');
    const first = start(slots, 'alice');
    const leaving = new AbortController();
    const second = start(slots, 'bob', 'bob', leaving.signal);
    const third = start(slots, 'carol');
    leaving.abort(new Error('enough'));
    await expect(second.done).rejects.toThrow('enough');
    first.end();
    await first.done;
    await settled();
    expect([second.started, third.started, slots.waiting]).toEqual([false, true, 0]);
    third.end();
    await third.done;
    await expect(start(slots, 'bob', 'bob', leaving.signal).done).rejects.toThrow('enough');
  });

  it('refuses more waiting readers than it may keep', async () => {
    const slots = new ReaderSlots({ ...limits, total: 1, waiting: 2 });
    const works = ['a', 'b', 'c'].map((user) => start(slots, user));
    await expect(start(slots, 'd').done).rejects.toThrow('send it again');
    for (const work of works) work.end();
  });
});
