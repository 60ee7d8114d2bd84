import type { Kysely } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  createTestDatabase,
  engines,
  type TestDatabase,
} from '../../test/support/test-database.js';
import { createIdSource, type Database, prepareQuery } from './database.js';
import { openDatabase } from './open-database.js';
import type { Schema } from './schema/index.js';

interface Room {
  readonly id: string;
  readonly owner: string;
}

let built = 0;
const roomsQuery = (tables: Kysely<Schema>, { owner }: Pick<Room, 'owner'>) => {
  built += 1;
  return tables.selectFrom('rooms').select('id').where('owner', '=', owner).orderBy('id');
};
const readRooms = prepareQuery(roomsQuery);

const insertRooms = prepareQuery((tables, rooms: readonly Room[]) =>
  tables
    .insertInto('rooms')
    .values(rooms.map(({ id, owner }) => ({ id, owner, oracle_did: id, created_at: 1 }))),
);

const rename = prepareQuery((tables, { id, owner }: Room) =>
  tables.updateTable('rooms').set({ owner }).where('id', '=', id),
);

describe.each(engines)('prepareQuery on %s', (engine) => {
  let test: TestDatabase;
  let database: Database;
  beforeAll(async () => {
    test = await createTestDatabase(engine);
    database = await openDatabase(test.options);
    await database.write((tables) =>
      insertRooms(tables, [
        { id: 'a1', owner: 'did:a' },
        { id: 'a2', owner: 'did:a' },
        { id: 'b1', owner: 'did:b' },
      ]),
    );
  });
  afterAll(async () => {
    await database.close();
    await test.drop();
  });

  const readIds = async (owner: string, tables = database.tables) =>
    (await readRooms(tables, { owner })).rows.map(({ id }) => id);

  it('binds new values at each run, and builds the query once', async () => {
    built = 0;
    expect(await readIds('did:a')).toEqual(['a1', 'a2']);
    expect(await readIds('did:b')).toEqual(['b1']);
    expect(await readIds("did:a' or 'x' = 'x")).toEqual([]);
    expect(built).toBe(1);
  });

  it('runs inside a unit of work', async () => {
    const seen = await database.write(async (tables) => {
      await insertRooms(tables, [{ id: 'c1', owner: 'did:c' }]);
      return readIds('did:c', tables);
    });
    expect(seen).toEqual(['c1']);
  });

  it('returns the number of changed rows', async () => {
    const changed = (id: string) =>
      database.write((tables) => rename(tables, { id, owner: 'did:d' }));
    await database.write((tables) => insertRooms(tables, [{ id: 'd1', owner: 'did:x' }]));
    expect((await changed('d1')).numAffectedRows).toBe(1n);
    expect((await changed('d2')).numAffectedRows).toBe(0n);
  });

  it('rejects a missing value', async () => {
    const query = prepareQuery(roomsQuery);
    expect(() => query(database.tables, {} as Room)).toThrow('is missing');
    expect((await query(database.tables, { owner: 'did:b' })).rows).toEqual([{ id: 'b1' }]);
    expect(() => readRooms(database.tables, {} as Room)).toThrow('is missing');
  });
});

it('createIdSource creates UUIDs of version 7', () => {
  const newId = createIdSource(Date.now);
  expect(newId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

it('createIdSource creates ids in order, also more than fit in one millisecond', () => {
  const newId = createIdSource(() => 1_700_000_000_000);
  const ids = Array.from({ length: 20_000 }, newId);
  expect(ids.toSorted()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
});

it('createIdSource creates ids in order if the clock goes back', () => {
  const times = [1_000, 2_000, 500, 2_001];
  const newId = createIdSource(() => times.shift() ?? 0);
  const ids = Array.from({ length: 4 }, newId);
  expect(ids.toSorted()).toEqual(ids);
});
