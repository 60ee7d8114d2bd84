import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runStatement } from '../../../packages/host/test/support/cluster.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { type ClusterHost, startHosts } from '../../../packages/host/test/support/host-cluster.js';
import {
  createTestDatabase,
  type TestDatabase,
} from '../../../packages/host/test/support/test-database.js';
import { startHomeserver, type TestHomeserver, withOracle } from './support/homeserver.js';
import { Room } from './support/rooms.js';

const JOURNAL = join(import.meta.dirname, '../../../packages/host/test/support/journal-process.ts');

let home: TestHomeserver;
let model: ControlledModel;
let database: TestDatabase;
let hosts: ClusterHost[] = [];

beforeAll(async () => {
  home = await startHomeserver();
  model = await startControlledModel();
  database = await createTestDatabase('postgres');
  const env = { ...database.env, ...model.env, ...withOracle(home), MATRIX_CHAT: 'true' };
  hosts = await startHosts(2, { env, main: JOURNAL });
});
afterAll(async () => {
  await Promise.all(hosts.map((host) => host.close()));
  model?.close();
  await home?.close();
  await database?.drop();
});

/** A host that looks at a message before its turn is known to be lost tries again after its lease. */
const AFTER_LEASE = { timeout: 150_000 };

it('MATRIX_CHAT answers each message once with two hosts, also when one dies and both restart', {
  timeout: 400_000,
}, async () => {
  const room = new Room(home);
  await expect.poll(() => room.hasOracle).toBe(true);
  const questions = Array.from({ length: 5 }, (_, i) => `question ${i}`);
  for (const question of questions) room.say(question);
  for (const _ of questions) {
    const turn = await model.next();
    turn.answer(`answer to ${turn.body.messages.at(-1).content}`);
  }
  const expected = questions.map((question) => `answer to ${question}`);
  await expect.poll(() => room.texts.toSorted()).toEqual(expected);
  room.say('interrupted');
  const turn = await model.next();
  turn.say('The beginning');
  // A turn without any text would be run again.
  const begun = "select 1 from frames where lines like '%The beginning%'";
  const url = database.env.DATABASE_URL ?? '';
  await expect.poll(() => runStatement(url, begun)).toHaveLength(1);
  await Promise.all(hosts.map((host) => host.kill()));
  room.say('said while no host runs');
  for (const host of hosts) await host.start();
  (await model.next()).answer('answer to what was said meanwhile');
  await expect.poll(() => room.texts.length, AFTER_LEASE).toBe(questions.length + 2);
  const added = room.texts.slice(questions.length).toSorted();
  expect(added).toEqual([
    expect.stringMatching(/^The beginning[\s\S]*Interrupted/),
    'answer to what was said meanwhile',
  ]);
  const roots = room.answers.map(({ content }) => content['m.relates_to'].event_id);
  expect(new Set(roots).size).toBe(roots.length);
  room.say('at the end');
  (await model.next()).answer('the end');
  await expect.poll(() => room.texts.at(-1)).toBe('the end');
  expect(room.texts).toHaveLength(questions.length + 3);
  expect(model.arrived).toBe(0);
});

it('MATRIX_CHAT sends once what follows a question that has expired, although both hosts have died', {
  timeout: 400_000,
}, async () => {
  const room = new Room(home);
  await expect.poll(() => room.hasOracle, AFTER_LEASE).toBe(true);
  const root = room.say('act');
  (await model.next()).call({ name: 'act_if_confirmed', input: { text: 'now' } });
  await expect.poll(() => room.texts.length).toBe(1);
  await Promise.all(hosts.map((host) => host.kill()));
  await runStatement(database.env.DATABASE_URL ?? '', 'update interrupts set expires_at = 1');
  for (const host of hosts) await host.start();
  const next = await model.next();
  expect(next.results.join()).toContain('expired');
  next.answer('Too late');
  await expect.poll(() => room.texts.length, AFTER_LEASE).toBe(2);
  expect(room.texts.at(-1)).toBe('_The question has expired._\n\nToo late');
  expect(room.answers.at(-1)?.content['m.relates_to'].event_id).toBe(root);
  await Promise.all(hosts.map((host) => host.kill()));
  const again = `update matrix_inbox set state = 'waiting' where message like '%${room.id}%'`;
  await runStatement(database.env.DATABASE_URL ?? '', again);
  for (const host of hosts) await host.start();
  room.say('at the end');
  (await model.next()).answer('the end');
  await expect.poll(() => room.texts.at(-1), AFTER_LEASE).toBe('the end');
  expect(room.texts).toHaveLength(3);
  expect(model.arrived).toBe(0);
});
