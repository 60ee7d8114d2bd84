import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../src/store/database.js';
import { openDatabase } from '../src/store/open-database.js';
import { isMigrationTable, readCatalog } from '../src/store/own-data/table-catalog.js';
import { bundledVariables } from './support/bundled-variables.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { fillTables, findText } from './support/database-scan.js';
import { startHost, type TestHost } from './support/host.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const confirm = (
  user: TestUser,
  capability = { can: ERASE_ABILITY, with: toOracleResource(user.host.did) },
) => ({
  body: { invocation: user.delegate({ capabilities: [capability], ttlSeconds: 300 }) },
});

describe.each(engines)('DELETE /me on %s', (engine) => {
  let test: TestDatabase;
  let model: ControlledModel;
  let host: TestHost;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase(engine);
    model = await startControlledModel();
    const plugins = Object.assign({}, ...Object.values(bundledVariables));
    // It looks for the DID in all rows.
    host = await startHost({
      hasTwins: false,
      env: { ...plugins, ...model.env, ...test.env },
    });
    database = await openDatabase(test.options);
    // What a plugin leaves behind that is not loaded any more.
    await database.write((tables) =>
      sql`create table forgotten_things (owner text not null, id text not null, data text, primary key (owner, id))`.execute(
        tables,
      ),
    );
  });

  afterAll(async () => {
    await database?.close();
    await host?.close();
    model?.close();
    await test?.drop();
  });

  it('every table has an owner, or says that its rows belong to no user', async () => {
    const tables = await readCatalog(database);
    const without = tables.filter(({ ownerColumn }) => ownerColumn === undefined);
    const undeclared = without.filter(
      ({ name, rules }) => rules.ownerColumn !== false && !isMigrationTable(name),
    );
    expect(undeclared).toEqual([]);
    expect(tables.map(({ name }) => name)).toContain('slack_inbox');
  });

  /** A user who was blocked a moment ago, which the host does not know yet; tries again if it does. */
  async function eraseWhenBlocked(user: TestUser) {
    const blocked = { owner: user.did, note: null, created_at: 0 };
    for (;;) {
      await user.request('GET', '/sessions');
      await database.write((tables) =>
        tables.insertInto('blocked_users').values(blocked).execute(),
      );
      const reply = await user.request('DELETE', '/me', confirm(user));
      if (reply.body.code !== 'caller_blocked') return reply;
      await database.write((tables) =>
        tables.deleteFrom('blocked_users').where('owner', '=', user.did).execute(),
      );
      await expect.poll(() => user.request('GET', '/sessions')).toMatchObject({ status: 200 });
    }
  }

  it('DELETE /me leaves the DID only in the declared exceptions, and names them', async () => {
    const [user, other] = [new TestUser(host), new TestUser(host)];
    const sessionId = await openSession(user);
    await user.request('POST', '/delegation', { body: { raw: user.delegate() } });
    const answered = await stream(user, sessionId, { message: `I am ${user.did}` });
    (await model.next()).answer(`Hello ${user.did}`);
    await answered.toEnd();
    const filled = await fillTables(database, user.did);
    expect(filled).toContain('forgotten_things');
    await fillTables(database, other.did);
    const before = await findText(database, other.did);

    const { status, body } = await eraseWhenBlocked(user);
    expect(status).toBe(200);
    const exceptions = (await readCatalog(database)).filter(({ rules }) => rules.onErase);
    const kept = exceptions.filter(({ rules }) => rules.onErase?.keeps === 'rows');
    expect(await findText(database, user.did)).toEqual(
      kept.map(({ name }) => `${name}.owner`).sort(),
    );
    expect(body.kept.map(({ table }: { table: string }) => table).sort()).toEqual(
      exceptions.map(({ name }) => name).sort(),
    );
    const withoutQueue = (found: string[]) => found.filter((place) => !place.startsWith('search_'));
    expect(withoutQueue(await findText(database, other.did))).toEqual(withoutQueue(before));
  });

  it('DELETE /me ends running turns and closes sockets first', async () => {
    const user = new TestUser(host);
    const sessionId = await openSession(user);
    const socket = await joinSession(user, sessionId);
    const live = await stream(user, sessionId, { message: 'a long story' });
    const turn = await model.next();
    turn.say('Once');
    await live.until(({ event }) => event === 'message');
    const { status } = await user.request('DELETE', '/me', confirm(user));
    expect(status).toBe(200);
    await turn.left;
    expect(await socket.until('closing')).toMatchObject({ reason: 'session_deleted' });
    await live.toEnd();
    expect(await findText(database, user.did)).toEqual([]);
    expect((await user.request('GET', '/sessions')).body).toEqual({ sessions: [], total: 0 });
  });

  it.each([
    ['upload', '/files?name=long.bin', 'application/octet-stream'],
    ['import', '/me/import', 'application/json'],
  ])(
    'DELETE /me ends an %s that has not arrived, and it leaves nothing behind',
    async (_, path, type) => {
      const user = new TestUser(host);
      const title = 'x'.repeat(1_000_000);
      const conversation = { title, create_time: 1, conversation_id: 'c', mapping: {} };
      const bytes = Buffer.from(JSON.stringify([conversation, conversation]));
      const headers = { ...user.headers, 'content-type': type, 'content-length': bytes.length };
      const request = httpRequest(`${host.url}${path}`, { method: 'POST', headers });
      const reply = once(request, 'response').catch(() => undefined);
      const half = bytes.length / 2;
      request.write(bytes.subarray(0, half));
      const findBegun = async () =>
        type === 'application/json'
          ? await readdir(join(host.dataDir, 'imports')).catch(() => [])
          : (await findText(database, user.did)).filter((place) => place.startsWith('file_chunks'));
      await expect.poll(findBegun).toHaveLength(1);
      expect((await user.request('DELETE', '/me', confirm(user))).status).toBe(200);
      request.end(bytes.subarray(half));
      // An import may be refused before the rest of it is sent.
      const [response] = (await reply) ?? [];
      expect(response?.statusCode ?? 400).toBeGreaterThanOrEqual(400);
      expect(response ? await text(response) : 'erased').toContain('erased');
      expect(await findText(database, user.did)).toEqual([]);
      expect((await user.request('GET', '/sessions')).body.total).toBe(0);
    },
  );

  it('DELETE /me accepts an invocation once, of the caller, for this oracle and this purpose', async () => {
    const [user, other] = [new TestUser(host), new TestUser(host)];
    await openSession(user);
    const erase = (body: unknown) => user.request('DELETE', '/me', { body });
    expect((await erase({})).status).toBe(400);
    expect((await erase({ invocation: user.mint() })).body.code).toBe('invalid_confirmation');
    expect((await erase(confirm(other).body)).body.code).toBe('invalid_confirmation');
    const elsewhere = confirm(user, { can: ERASE_ABILITY, with: 'did:web:other.example' });
    expect((await erase(elsewhere.body)).body.code).toBe('invalid_confirmation');
    expect((await user.request('GET', '/sessions')).body.total).toBe(1);
    const { body } = confirm(user);
    expect((await erase(body)).status).toBe(200);
    await openSession(user);
    const again = await erase(body);
    expect(again).toMatchObject({ status: 403, body: { code: 'invalid_confirmation' } });
    expect(again.body.message).toContain('used before');
    expect((await user.request('GET', '/sessions')).body.total).toBe(1);
  });

  it('a delegation of an erased user stays revoked', async () => {
    const user = new TestUser(host);
    const delegation = user.delegate();
    await user.request('POST', '/delegation', { body: { raw: delegation } });
    const list = () =>
      fetch(`${host.url}/sessions`, { headers: { 'x-ucan-delegation': delegation } });
    expect((await list()).status).toBe(200);
    await user.request('DELETE', '/me', confirm(user));
    expect((await list()).status).toBe(401);
    expect(await findText(database, user.did)).toEqual([]);
  });
});
