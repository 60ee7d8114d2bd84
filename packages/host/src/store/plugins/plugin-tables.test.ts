import type { PluginMigrations } from '@sibyl/plugin-kit';
import { sql } from 'kysely';
import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../../test/support/test-database.js';

const migrations: PluginMigrations = {
  '0001-pages': async (tables) => {
    await tables.schema
      .createTable('note_book_pages')
      .addColumn('id', 'text', (c) => c.primaryKey().notNull())
      .addColumn('text', 'text', (c) => c.notNull())
      .execute();
  },
};
const request = { plugin: 'note-book', migrations, plugins: ['note', 'note-book'] };

describe.each(engines)("a plugin's tables on %s", (engine) => {
  const test = useStore(engine);
  const open = (more: Partial<typeof request> = {}) =>
    test.store.pluginTables.open({ ...request, ...more });

  it('are made once, by whoever comes first, and kept', async () => {
    const second = await test.another();
    const [database, same] = await Promise.all([open(), second.pluginTables.open(request)]);
    expect(database.engine).toBe(engine);
    await database.write((tables) =>
      tables.insertInto('note_book_pages').values({ id: '1', text: 'kept' }).execute(),
    );
    await open();
    expect(await same.tables.selectFrom('note_book_pages').selectAll().execute()).toEqual([
      { id: '1', text: 'kept' },
    ]);
  });

  it('can be joined, aliased and named within a query', async () => {
    const { tables, write } = await open();
    await write((handle) =>
      handle.insertInto('note_book_pages').values({ id: '2', text: 'joined' }).execute(),
    );
    const rows = await tables
      .with('short', (handle) => handle.selectFrom('note_book_pages').select('id'))
      .selectFrom('short as s')
      .innerJoin('note_book_pages as p', 'p.id', 's.id')
      .select(['p.text', 's.id'])
      .where('p.id', '=', '2')
      .execute();
    expect(rows).toEqual([{ id: '2', text: 'joined' }]);
  });

  it('get the steps that are added later', async () => {
    await open();
    const added: PluginMigrations = {
      ...migrations,
      '0002-colour': async (tables, on) => {
        expect(on).toBe(engine);
        await tables.schema.alterTable('note_book_pages').addColumn('colour', 'text').execute();
      },
    };
    const { tables } = await open({ migrations: added });
    await tables.selectFrom('note_book_pages').select('colour').execute();
    await expect(open()).rejects.toThrow(/written by a newer plugin note-book.*0002-colour/);
  });

  it('are the only ones it can query', async () => {
    const { tables, write, read } = await open({ plugin: 'note', migrations: {} });
    const foreign = /is not the plugin note's: the names of its tables begin with note_/;
    const attempts = [
      () => tables.selectFrom('sessions').selectAll().execute(),
      () => tables.selectFrom('note_book_pages').selectAll().execute(),
      () =>
        tables.selectFrom('note_x as n').innerJoin('secrets as s', 's.owner', 'n.owner').execute(),
      () => write((handle) => handle.deleteFrom('delegations').execute()),
      () => write((handle) => handle.schema.dropTable('messages').execute()),
      () => read((handle) => handle.selectFrom('runs').selectAll().execute()),
      () => sql`select * from ${sql.table('secrets')}`.execute(tables),
      () => tables.selectFrom('main.sessions').selectAll().execute(),
    ];
    for (const attempt of attempts) await expect(attempt).rejects.toThrow(foreign);
    const peek: PluginMigrations = {
      '0001': async (handle) => void (await handle.selectFrom('secrets').selectAll().execute()),
    };
    await expect(open({ plugin: 'note', migrations: peek })).rejects.toThrow(foreign);
  });
});
