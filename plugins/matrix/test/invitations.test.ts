import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, type TestHomeserver, withOracle } from './support/homeserver.js';

let home: TestHomeserver;
let elsewhere: TestHomeserver;
let model: ControlledModel;
let host: TestHost;

beforeAll(async () => {
  home = await startHomeserver();
  elsewhere = await startHomeserver();
  model = await startControlledModel();
  host = await startHost({ env: { ...model.env, ...withOracle(home) } });
});

afterAll(async () => {
  await host?.close();
  model?.close();
  await home?.close();
  await elsewhere?.close();
});

/** A turn of a new user whose own homeserver names them. */
async function arriveFrom(server: TestHomeserver, userId: string): Promise<void> {
  server.users.set('their-token', userId);
  const user = new TestUser(host);
  const headers = { 'x-matrix-homeserver': server.url, 'x-matrix-access-token': 'their-token' };
  const reply = await stream(user, await openSession(user), { message: 'Hello' }, headers);
  (await model.next()).answer('ok');
  await reply.toEnd();
}

const invited = () => [...home.rooms.values()].flatMap((room) => room.invited);
const refusals = () =>
  host.log.filter(({ msg }) => msg === 'cannot invite the user to their Matrix room').length;

describe('RoomDirectory.invite invites', () => {
  it('whom their own homeserver knows', async () => {
    await arriveFrom(home, '@alice:test');
    await expect.poll(invited).toContain('@alice:test');
  });

  it.each([
    '@victim:test',
    `@victim:127.0.0.1:1`,
    '@victim:https://127.0.0.1',
    'victim',
    '@a:b c',
    '@x:'.repeat(1000),
  ])('RoomDirectory.invite does not invite users of other homeservers: %s', async (userId) => {
    const before = refusals();
    await arriveFrom(elsewhere, userId);
    await expect.poll(refusals).toBe(before + 1);
    expect(invited()).not.toContain(userId);
  });
});
