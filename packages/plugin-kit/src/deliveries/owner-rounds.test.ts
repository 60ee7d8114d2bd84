import { expect, it } from 'vitest';
import { OwnerRounds } from './owner-rounds.js';

const logger = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, fatal() {} } as never;

/** Work in memory, by owner; that of `slow` owners does not end. */
function open(work: Map<string, number>) {
  const started: string[] = [];
  const hang = Promise.withResolvers<void>();
  const rounds = new OwnerRounds<string>({
    max: 8,
    maxPerOwner: 2,
    findHolder: async (owner) => ({ owner, address: owner[0] as string, isKnown: true }),
    listOwners: async ({ after, limit }) =>
      [...work]
        .flatMap(([owner, left]) => (left > 0 && owner > after ? owner : []))
        .sort()
        .slice(0, limit),
    take: async (owner, limit) => {
      const count = Math.min(limit, work.get(owner) ?? 0);
      work.set(owner, (work.get(owner) ?? 0) - count);
      return Array<string>(count).fill(owner);
    },
    run: async (owner) => {
      started.push(owner);
      if (owner.endsWith('slow')) await hang.promise;
      if (owner.endsWith('broken')) throw new Error('broken');
    },
    describe: (owner) => ({ owner }),
    logger,
  });
  return { rounds, started, end: () => hang.resolve() };
}

it('OwnerRounds.fill leaves places to other addresses, however much one has', async () => {
  const work = new Map(Array.from({ length: 20 }, (_, i) => [`a${i} slow`, 100]));
  const { rounds, started, end } = open(work);
  for (let i = 0; i < 3; i++) await rounds.fill();
  expect(started).toHaveLength(4);
  work.set('b', 1);
  await rounds.fill();
  expect(started.at(-1)).toBe('b');
  end();
  await rounds.close();
});

it('OwnerRounds.fill serves first whom it served least recently, and gives places back after failures', async () => {
  const work = new Map([
    ['a', 10],
    ['b broken', 10],
  ]);
  const { rounds, started } = open(work);
  for (let i = 0; i < 3; i++) await rounds.fill();
  work.set('c', 1);
  await rounds.fill();
  expect(started.slice(-5)).toContain('c');
  expect(started.slice(-5)[0]).toBe('c');
  await rounds.close();
});

it('OwnerRounds.fill reaches users behind any number of others whose work stays due', async () => {
  const names = Array.from({ length: 2500 }, (_, i) => `a${String(i).padStart(4, '0')} slow`);
  const { rounds, started, end } = open(new Map([...names, 'b'].map((owner) => [owner, 1000])));
  for (let i = 0; i < 3; i++) await rounds.fill();
  expect(started).toContain('b');
  end();
  await rounds.close();
});
