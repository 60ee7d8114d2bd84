import { sql } from 'kysely';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../../test/support/test-database.js';
import { copyDatabase } from './copy-database.js';
import type { Database } from './database.js';
import { openDatabase } from './open-database.js';

const created: TestDatabase[] = [];
let source: Database;
let target: Database;

beforeEach(async () => {
  [source, target] = [await open('sqlite'), await open('postgres')];
  await source.write(async (tables) => {
    await sql`insert into rooms (id, owner, oracle_did, created_at)
      values ('one', 'did:key:a', 'did:key:o', 1), ('Two', 'did:key:b', 'did:key:o', 2)`.execute(
      tables,
    );
  });
});
afterEach(async () => {
  await source.close();
  await target.close();
  for (const database of created.splice(0)) await database.drop();
});

async function open(engine: 'sqlite' | 'postgres'): Promise<Database> {
  const database = await createTestDatabase(engine);
  created.push(database);
  return openDatabase(database.options);
}

const countRooms = async () => (await sql`select id from rooms`.execute(target.tables)).rows.length;

it('copyDatabase copies rows and digests them alike on both engines', async () => {
  const copied = await copyDatabase(source, target);
  expect(copied.find(({ table }) => table === 'rooms')).toMatchObject({ rows: 2 });
  expect(await countRooms()).toBe(2);
  const back = await open('sqlite');
  expect(await copyDatabase(target, back)).toEqual(
    expect.arrayContaining(copied.filter(({ rows }) => rows > 0)),
  );
  await back.close();
});

it('copyDatabase commits nothing if a row arrives otherwise than it was sent', async () => {
  await sql`create function alter_room() returns trigger language plpgsql as $$
    begin new.created_at := 3; return new; end $$`.execute(target.tables);
  await sql`create trigger alter_room before insert on rooms for each row
    execute function alter_room()`.execute(target.tables);
  await expect(copyDatabase(source, target)).rejects.toThrow(/Nothing was copied: rooms/);
  expect(await countRooms()).toBe(0);
});

it('copyDatabase copies tables without a key, equal rows included', async () => {
  for (const database of [source, target])
    await database.write((tables) =>
      sql`create table notes_lines (owner text, line text)`.execute(tables),
    );
  await source.write((tables) =>
    sql`with recursive n(i) as (select 1 union all select i + 1 from n where i < 1200)
      insert into notes_lines select 'did:key:a', 'line ' || (i % 7) from n`.execute(tables),
  );
  const copied = await copyDatabase(source, target);
  expect(copied.find(({ table }) => table === 'notes_lines')).toMatchObject({ rows: 1200 });
});

it('copyDatabase names a table that the target lacks', async () => {
  await source.write((tables) =>
    sql`create table notes_pages (owner text, id text, primary key (owner, id))`.execute(tables),
  );
  await expect(copyDatabase(source, target)).rejects.toThrow(/lacks the table notes_pages/);
});
