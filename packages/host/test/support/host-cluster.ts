import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { type ControlledModel, startControlledModel } from './controlled-model.js';
import { findFreePort } from './free-port.js';
import { type HostProcess, runHost, untilListening } from './process.js';
import { createTestDatabase, type TestDatabase } from './test-database.js';
import { TestUser } from './user.js';

/** Limits that no test reaches by default. */
const UNLIMITED = {
  RATE_LIMIT_PER_MINUTE: '1000000',
  RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000',
  STREAMS_PER_USER: '100000',
};

interface HostOptions {
  /** The variables of all hosts, such as DATABASE_URL. */
  readonly env: Readonly<Record<string, string>>;
  /** The program, if it is not the host itself. */
  readonly main?: string | undefined;
  readonly nodeArgs?: readonly string[];
}

/** A host process that can be killed and started again at the same address. */
export class ClusterHost {
  readonly url: string;
  did = '';
  private process: HostProcess | undefined;
  /** What earlier processes of this host have written. */
  private earlierOutput = '';

  private constructor(
    private readonly port: number,
    readonly dataDir: string,
    private options: HostOptions,
  ) {
    this.url = `http://127.0.0.1:${port}`;
  }

  static async create(options: HostOptions): Promise<ClusterHost> {
    const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-cluster-'));
    return new ClusterHost(await findFreePort(), dataDir, options);
  }

  get running(): HostProcess {
    if (!this.process) throw new Error('The host was not started');
    return this.process;
  }

  get output(): string {
    return this.earlierOutput + (this.process?.output() ?? '');
  }

  /** Starts the process; with variables for this one alone. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    this.earlierOutput = this.output;
    const { env: shared, main, nodeArgs } = this.options;
    const own = { PORT: String(this.port), DATA_DIR: this.dataDir };
    this.process = runHost({ ...UNLIMITED, ...shared, ...own, ...env }, nodeArgs, main);
    await untilListening(this.process);
    const card = await (await fetch(`${this.url}/.well-known/oracle.json`)).json();
    this.did = (card as { did: string }).did;
  }

  /** Lets the process end, as an init system does, and starts a program in its place; by default the host itself. */
  async replace(main?: string): Promise<void> {
    this.running.child.kill('SIGTERM');
    await this.running.ended;
    this.options = { ...this.options, main };
    await this.start();
  }

  /** Ends the process without any cleanup. */
  async kill(): Promise<void> {
    this.process?.child.kill('SIGKILL');
    await this.process?.ended;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.dataDir, { recursive: true, force: true });
  }
}

/** Starts hosts that share a database and the key of the oracle. */
export async function startHosts(count: number, options: HostOptions): Promise<ClusterHost[]> {
  // A test database has the key of its oracle.
  const key = options.env.ORACLE_MNEMONIC
    ? {}
    : { ORACLE_PRIVATE_KEY: randomBytes(32).toString('hex') };
  const env = { ...key, ...options.env };
  const hosts: ClusterHost[] = [];
  try {
    for (let i = 0; i < count; i++) hosts.push(await ClusterHost.create({ ...options, env }));
    // The first one creates the tables.
    for (const host of hosts) await host.start();
    return hosts;
  } catch (error) {
    await Promise.all(hosts.map((host) => host.close()));
    throw error;
  }
}

/** Three hosts with one database and one controlled model during the surrounding file. */
export interface ControlledCluster {
  readonly hosts: readonly [ClusterHost, ClusterHost, ClusterHost];
  readonly model: ControlledModel;
  readonly database: TestDatabase;
  /** The same new user as a client of each host. */
  newUser(): readonly [TestUser, TestUser, TestUser];
}

export function useControlledCluster(
  env: Readonly<Record<string, string>> = {},
  program: Pick<HostOptions, 'main' | 'nodeArgs'> = {},
): ControlledCluster {
  const parts: { hosts?: ClusterHost[]; model?: ControlledModel; database?: TestDatabase } = {};
  beforeAll(async () => {
    parts.model = await startControlledModel();
    parts.database = await createTestDatabase('postgres');
    const shared = { ...parts.database.env, ...parts.model.env, ...env };
    parts.hosts = await startHosts(3, { ...program, env: shared });
  });
  afterEach(() => parts.model?.discard());
  afterAll(async () => {
    await Promise.all((parts.hosts ?? []).map((host) => host.close()));
    parts.model?.close();
    await parts.database?.drop();
  });
  return Object.assign(parts as unknown as Omit<ControlledCluster, 'newUser'>, {
    newUser: () => {
      const [a, b, c] = parts.hosts as [ClusterHost, ClusterHost, ClusterHost];
      const user = new TestUser(a);
      return [user, user.at(b), user.at(c)] as const;
    },
  });
}
