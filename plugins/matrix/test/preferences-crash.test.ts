import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { ask, call, say } from '../../../packages/host/test/support/ask.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHosts } from '../../../packages/host/test/support/host-cluster.js';
import { createTestDatabase, engines } from '../../../packages/host/test/support/test-database.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { startHomeserver, withOracle } from './support/homeserver.js';

let model: ControlledModel;
beforeAll(async () => {
  model = await startControlledModel();
});
afterAll(() => model?.close());

it.each(engines)(
  'MatrixRoomState copies at once what a host copied that ended by kill -9, on %s',
  async (engine) => {
    const home = await startHomeserver();
    onTestFinished(home.close);
    const database = await createTestDatabase(engine);
    onTestFinished(database.drop);
    const env = { ...database.env, ...model.env, ...withOracle(home) };
    // Only one process can use a SQLite file.
    const hosts = await startHosts(engine === 'postgres' ? 2 : 1, { env });
    onTestFinished(async () => {
      await Promise.all(hosts.map((host) => host.close()));
    });
    const [first] = hosts;
    if (!first) throw new Error('No host was started');
    home.behavior.hangs = true;
    const preferences = call(['set_user_preferences', { tone: 'calm' }]);
    await ask({ alice: new TestUser(first), model }, [preferences, say()]);
    await expect.poll(() => home.requests.length).toBeGreaterThan(0);
    await first.kill();
    home.behavior.hangs = false;
    if (engine === 'sqlite') await first.start();
    const copied = () => [...home.rooms.values()].flatMap(({ state }) => [...state.values()]);
    // Without the host, the lease lasts for two minutes.
    await expect
      .poll(copied, { timeout: 45_000 })
      .toEqual([expect.objectContaining({ tone: 'calm' })]);
  },
);
