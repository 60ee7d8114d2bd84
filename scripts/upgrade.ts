// Upgrades hosts of an older version and checks that no message is lost or repeated:
//   npm run test:upgrade -- <checkout of the older version> [--all-at-once]
// Build the older checkout before. Three of its hosts on one PostgreSQL are replaced one at a time by hosts of this checkout, while
// users send messages with idempotency keys through a load balancer. With --all-at-once, for versions that cannot run beside this
// one, a single host is stopped and replaced, on SQLite and on PostgreSQL.
import '../packages/host/test/support/source-hooks.ts';
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ChatLoad as Load } from '../packages/host/test/support/chat-load.ts';
import type { HostProcess } from '../packages/host/test/support/process.ts';
import { MAIN } from './build.ts';

// Loaded only now: the hooks resolve what the support of the tests imports.
const { startAnsweringModel } = await import('../packages/host/test/support/answering-model.ts');
const { ChatLoad, inspectLoad, NOTHING_WRONG } = await import(
  '../packages/host/test/support/chat-load.ts'
);
const { findFreePort } = await import('../packages/host/test/support/free-port.ts');
const { startPostgres } = await import('../packages/host/test/support/postgres-server.ts');
const { runHost, untilListening } = await import('../packages/host/test/support/process.ts');
const { startRoundRobinProxy } = await import('../packages/host/test/support/round-robin-proxy.ts');
const { TestUser } = await import('../packages/host/test/support/user.ts');

const HOSTS = 3;
const USERS = 6;
/** Confirmed messages between two replacements. */
const PROGRESS = 30;
const WAIT_MS = 300_000;

/** A host at a fixed address, whose version can change. */
class Host {
  readonly dataDir = mkdtempSync(join(tmpdir(), 'sibyl-upgrade-'));
  readonly url: string;
  private readonly processes: HostProcess[] = [];

  constructor(
    private readonly port: number,
    private readonly env: Readonly<Record<string, string>>,
  ) {
    this.url = `http://127.0.0.1:${port}`;
  }

  /** What this host's processes have logged about problems. */
  get warnings(): readonly string[] {
    const lines = this.processes.flatMap(({ output }) => output().split('\n'));
    return lines.filter((line) => /"level":"(warn|error|fatal)"/.test(line));
  }

  async start(main: string): Promise<void> {
    await untilListening(this.run(main));
    // 0.1 does not have this route.
    await waitUntil('the host is ready', async () => {
      const { status } = await fetch(`${this.url}/health/ready`);
      return status !== 503;
    });
  }

  /** Fails unless the host ends by itself, as an operator's service manager expects. */
  async stop(): Promise<void> {
    const process = this.processes.at(-1);
    process?.child.kill('SIGTERM');
    assert.equal(await process?.ended, 0, process?.output());
  }

  /** Starts a version that must refuse the database; returns what it says. */
  async refuse(main: string): Promise<string> {
    const { ended, output } = this.run(main);
    assert.equal(await ended, 1, output());
    return output();
  }

  async remove(): Promise<void> {
    const process = this.processes.at(-1);
    process?.child.kill('SIGKILL');
    await process?.ended;
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  private run(main: string): HostProcess {
    const env = { ...this.env, PORT: String(this.port), DATA_DIR: this.dataDir };
    const process = runHost(env, [], main);
    this.processes.push(process);
    return process;
  }
}

/** Hosts of the older version, a model and a load balancer for the duration of a function. */
async function withOldHosts(
  { old, count, databaseUrl }: { old: string; count: number; databaseUrl: string | undefined },
  use: (hosts: readonly Host[], test: UpgradeTest) => Promise<void>,
): Promise<void> {
  const model = await startAnsweringModel();
  const env = {
    ...model.env,
    ...(databaseUrl && { DATABASE_URL: databaseUrl }),
    ORACLE_MNEMONIC: 'the oracle of a test',
    RATE_LIMIT_PER_MINUTE: '1000000',
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000',
    STREAMS_PER_USER: '100000',
  };
  const hosts: Host[] = [];
  for (let i = 0; i < count; i++) hosts.push(new Host(await findFreePort(), env));
  const proxy = await startRoundRobinProxy(hosts.map(({ url }) => url));
  try {
    for (const host of hosts) await host.start(old);
    const card = await (await fetch(`${proxy.url}/.well-known/oracle.json`)).json();
    const address = { url: proxy.url, did: (card as { did: string }).did };
    await use(hosts, { model, startLoad: (options) => startLoad(address, options) });
  } catch (error) {
    for (const host of hosts) console.log(host.warnings.join('\n'));
    throw error;
  } finally {
    proxy.close();
    await Promise.all(hosts.map((host) => host.remove()));
    model.close();
  }
}

interface UpgradeTest {
  readonly model: Awaited<ReturnType<typeof startAnsweringModel>>;
  startLoad(options: LoadOptions): Promise<Load>;
}

/** Whether some messages wait for their whole answer as JSON, whose `status` 0.1 does not have. */
interface LoadOptions {
  readonly sendsWhole: boolean;
}

function startLoad(
  address: { readonly url: string; readonly did: string },
  options: LoadOptions,
): Promise<Load> {
  const users = Array.from({ length: USERS }, () => new TestUser(address));
  return ChatLoad.start(users, options);
}

async function makeProgress(load: Load): Promise<void> {
  const before = load.acknowledged;
  await waitUntil('messages are confirmed', () => load.acknowledged > before + PROGRESS);
}

/** Sends no more and waits for all answers. */
async function endLoad(load: Load): Promise<void> {
  await load.stop();
  await waitUntil('all turns have ended', () => load.open.length === 0);
}

async function expectNothingWrong(load: Load, { model }: UpgradeTest): Promise<void> {
  assert.deepEqual(await inspectLoad(load, model.calls), NOTHING_WRONG);
  const statuses = Map.groupBy(
    load.chats.flatMap(({ sent }) => sent),
    ({ status }) => status,
  );
  const counts = [...statuses].map(([status, messages]) => `${messages.length} ${status}`);
  console.log(
    `${load.acknowledged} messages: ${counts.join(', ')}, 0 lost, 0 repeated; ${load.unavailable} requests repeated after 503, ${load.brokenRequests} after a lost connection`,
  );
}

async function waitUntil(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + WAIT_MS;
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(`Waited too long until ${what}`);
    await sleep(50);
  }
}

/** Each host stops while the others serve, and comes back with the new version. */
async function upgradeOneAtATime(old: string): Promise<void> {
  const postgres = await startPostgres();
  try {
    await withOldHosts({ old, count: HOSTS, databaseUrl: postgres.url }, async (hosts, test) => {
      const load = await test.startLoad({ sendsWhole: true });
      await makeProgress(load);
      for (const [i, host] of hosts.entries()) {
        await host.stop();
        await makeProgress(load);
        await host.start(MAIN);
        await makeProgress(load);
        console.log(
          `Host ${i + 1} of ${hosts.length} upgraded; ${load.acknowledged} messages confirmed`,
        );
      }
      await endLoad(load);
      await expectNothingWrong(load, test);
      await expectRefusal(hosts[0], old);
    });
  } finally {
    await postgres.stop();
  }
}

/** The host stops, and comes back with the new version and the same data. */
async function upgradeAllAtOnce(old: string, databaseUrl: string | undefined): Promise<void> {
  await withOldHosts({ old, count: 1, databaseUrl }, async ([host], test) => {
    assert(host);
    const before = await test.startLoad({ sendsWhole: false });
    await makeProgress(before);
    await endLoad(before);
    await host.stop();
    await host.start(MAIN);
    await expectNothingWrong(before, test);
    const after = await test.startLoad({ sendsWhole: true });
    await makeProgress(after);
    await endLoad(after);
    await expectNothingWrong(after, test);
    await expectRefusal(host, old);
  });
}

/** Only the backup leads back, and the older version says so instead of damaging the data. */
async function expectRefusal(host: Host | undefined, old: string): Promise<void> {
  await host?.stop();
  const said = (await host?.refuse(old)) ?? '';
  assert.match(said, /written by a newer/);
  console.log('The older version refuses the upgraded database');
}

async function main([checkout, mode]: readonly string[]): Promise<number> {
  const old = resolve(checkout ?? '', 'packages/host/dist/bundle/main.js');
  if (!checkout || !existsSync(old)) {
    console.error(
      'Usage: npm run test:upgrade -- <checkout of the older version, built> [--all-at-once]',
    );
    return 2;
  }
  if (mode !== '--all-at-once') {
    await upgradeOneAtATime(old);
    return 0;
  }
  console.log('SQLite');
  await upgradeAllAtOnce(old, undefined);
  console.log('PostgreSQL');
  const postgres = await startPostgres();
  await upgradeAllAtOnce(old, postgres.url).finally(() => postgres.stop());
  return 0;
}

process.exitCode = await main(process.argv.slice(2));
