import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { type Holder, Places, Rounds, type Slice } from './places.js';

const at = (address: string, owner = address, isKnown = false): Holder => ({
  address,
  owner,
  isKnown,
});
const known = (address: string, owner = address) => at(address, owner, true);

/** Takes places, each for another owner, until one is refused. */
function fill(places: Places, address: string, isKnown = false) {
  for (let count = 0; ; count++) {
    const { error } = places.take(at(address, `${address} ${count}`, isKnown));
    if (error !== undefined) return { count, error };
  }
}

describe('Places.take', () => {
  it('leaves new owners of one address a quarter, and further addresses always some', () => {
    const places = new Places({ max: 1000 });
    expect(fill(places, 'a')).toEqual({ count: 250, error: 'address' });
    expect(fill(places, 'b')).toEqual({ count: 167, error: 'address' });
    for (let i = 0; i < 8; i++) expect(fill(places, `c${i}`).count).toBeGreaterThan(0);
  });

  it('leaves known owners a quarter that new ones never get, however many addresses they have', () => {
    const places = new Places({ max: 1000 });
    let total = 0;
    for (let i = 0; i < 1000; i++) total += fill(places, `a${i}`).count;
    expect(total).toBe(750);
    expect(places.take(at('b'))).toEqual({ error: 'total' });
    expect(fill(places, 'b', true).count).toBe(125);
    expect(fill(places, 'c', true).count).toBeGreaterThan(50);
  });

  it('leaves known owners of an address room beside any number of new ones', () => {
    const places = new Places({ max: 1000 });
    fill(places, 'office');
    expect(fill(places, 'office', true).count).toBe(375);
    expect(places.take(at('b')).ok).toBeDefined();
  });

  it('lets known owners of one address have half', () => {
    expect(fill(new Places({ max: 1000 }), 'proxy', true)).toEqual({
      count: 500,
      error: 'address',
    });
  });

  it('limits each owner, more tightly once more than half is taken', () => {
    const places = new Places({ max: 100, maxPerOwner: 20 });
    for (let i = 0; i < 20; i++) expect(places.take(known('a', 'alice')).ok).toBeDefined();
    expect(places.take(known('a', 'alice'))).toEqual({ error: 'owner' });
    for (let i = 0; i < 30; i++) places.take(known(`b${i}`));
    let held = 0;
    while (places.take(known('c', 'carol')).ok) held += 1;
    expect(held).toBe(15);
  });

  it('leaves 60 addresses, each with as much as an owner may have, unable to take all', () => {
    const places = new Places({ max: 1000, maxPerOwner: 20 });
    for (let i = 0; i < 60; i++) while (places.take(known(`a${i}`)).ok);
    expect(places.size).toBeLessThan(900);
  });

  it('gives a place back once, and forgets holders without places', () => {
    const places = new Places({ max: 1 });
    const { ok: release } = places.take(at('a'));
    expect(places.take(known('b'))).toEqual({ error: 'total' });
    release?.();
    release?.();
    expect(places.size).toBe(0);
    expect(places.take(at('b')).ok).toBeDefined();
    expect(Reflect.get(places, 'addresses').size).toBe(1);
    expect(Reflect.get(places, 'owners').size).toBe(1);
  });
});

describe('Places.hasFew', () => {
  it('is true for addresses with far fewer places than others, and of many with one each for none', () => {
    const places = new Places({ max: 1000 });
    fill(places, 'a');
    expect(places.hasFew(at('b'))).toBe(true);
    expect(places.hasFew(known('a'))).toBe(true);
    expect(places.hasFew(at('a'))).toBe(false);
    const spread = new Places({ max: 1000 });
    for (let i = 0; i < 500; i++) spread.take(known(`${i}`));
    expect(spread.hasFew(at('new'))).toBe(false);
    expect(new Places({ max: 10 }).hasFew(at('first'))).toBe(false);
  });
});

describe('Places.force', () => {
  it('takes a place that is not free, which counts', () => {
    const places = new Places({ max: 1 });
    places.take(at('a'));
    const release = places.force(at('b'));
    expect(places.size).toBe(2);
    release();
    expect(places.take(at('c'))).toEqual({ error: 'total' });
  });
});

describe('Rounds.run', () => {
  /** Work that continues until it is ended. */
  function open(rounds: Rounds, holder: Holder, log: string[]) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const ended = rounds.run(holder, () => {
      log.push(holder.owner);
      return promise;
    });
    return {
      end: () => {
        resolve();
        return ended;
      },
    };
  }

  it('serves the address next that was served least recently, then the owner', async () => {
    const rounds = new Rounds({ places: 1, sliceMs: 60_000 });
    const log: string[] = [];
    const first = open(rounds, at('a', 'a1'), log);
    const others = ['a1', 'a2', 'a1', 'b1', 'a3', 'c1', 'b2'].map((owner) =>
      open(rounds, at(owner[0] as string, owner), log),
    );
    for (const { end } of others) void end();
    await first.end();
    await expect.poll(() => log.length).toBe(8);
    expect(log).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a1', 'a1']);
  });

  it('lets slow work pause for others, and leaves one place to work that is not known to be slow', async () => {
    const rounds = new Rounds({ places: 2, sliceMs: 10 });
    let isOver = false;
    const log: string[] = [];
    const crawl = (name: string) =>
      rounds.run(at(name), async ({ giveWay }: Slice) => {
        while (!isOver) {
          log.push(name);
          await sleep(2);
          await giveWay();
        }
      });
    const slow = ['a', 'b', 'c'].map(crawl);
    await expect.poll(() => new Set(log).size).toBe(3);
    const startedAt = performance.now();
    for (let i = 0; i < 5; i++) await rounds.run(at(`quick ${i}`), async () => undefined);
    expect(performance.now() - startedAt).toBeLessThan(1000);
    isOver = true;
    await Promise.all(slow);
    expect(rounds.waiting).toBe(0);
  });

  it('does not pause if no work waits', async () => {
    const rounds = new Rounds({ places: 1, sliceMs: 0 });
    const log: number[] = [];
    await rounds.run(at('a'), async ({ giveWay }) => {
      for (let i = 0; i < 3; i++) {
        log.push(rounds.waiting);
        await giveWay();
      }
    });
    expect(log).toEqual([0, 0, 0]);
  });

  it('ends the wait of work that is aborted, before and between its slices, and frees its place once', async () => {
    const rounds = new Rounds({ places: 1, sliceMs: 0 });
    const stop = new AbortController();
    const hold = Promise.withResolvers<void>();
    const aborted = rounds.run(at('a'), ({ giveWay }) => giveWay().then(giveWay), stop.signal);
    const holding = rounds.run(at('b'), () => hold.promise);
    const waiting = rounds.run(at('c'), async () => 'never', stop.signal);
    const both = Promise.allSettled([aborted, waiting]);
    await expect.poll(() => rounds.waiting).toBe(2);
    stop.abort(new Error('enough'));
    for (const { status } of await both) expect(status).toBe('rejected');
    hold.resolve();
    await holding;
    expect(await rounds.run(at('d'), async () => 'done')).toBe('done');
    expect(Reflect.get(rounds, 'running')).toBe(0);
    expect(Reflect.get(rounds, 'slow')).toBe(0);
  });
});
