import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it } from 'vitest';
import { newOwner, useStore } from './test-database.js';

const test = useStore('sqlite', { hasTwins: true });

/** Runs a statement without the owner, as a query that forgets it would. */
function run(sql: string, ...values: string[]): readonly object[] {
  const database = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
  try {
    return database.prepare(sql).all(...values);
  } finally {
    database.close();
  }
}

it('addTwins gives each row a twin of another owner, which follows its changes and has other contents', async () => {
  const owner = newOwner();
  const { sessions } = test.store;
  const { sessionId: id } = await sessions.create({
    owner,
    oracleDid: 'did:key:zOracle',
    title: 'First',
  });
  const find = () => run('select owner, title from sessions where id = ?', id);
  const twin = `did:copy:${owner}`;
  expect(find()).toMatchObject([
    { owner: twin, title: 'twin First' },
    { owner, title: 'First' },
  ]);
  run("update sessions set title = 'Second' where owner = ? and id = ?", owner, id);
  expect(find()).toMatchObject([{ title: 'twin Second' }, { title: 'Second' }]);
  await sessions.delete({ owner, sessionId: id });
  expect(find()).toEqual([]);
});

it('addTwins makes a statement fail that would change a twin', async () => {
  const owner = newOwner();
  const { sessionId: id } = await test.store.sessions.create({
    owner,
    oracleDid: 'did:key:zOracle',
  });
  const error = 'a row of another owner in sessions would change';
  expect(() => run("update sessions set title = 'x' where id = ?", id)).toThrow(error);
  expect(() => run('delete from sessions where id = ?', id)).toThrow(error);
  expect(await test.store.sessions.find({ owner, sessionId: id })).toMatchObject({ sessionId: id });
});
