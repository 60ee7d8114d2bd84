import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { StubOptions } from '../../packages/host/test/support/model-servers/chat-completions-stub.ts';
import { startPostgres } from '../../packages/host/test/support/postgres-server.ts';
import { mintTokens, type ServerProcess, startServer } from '../support/server-process.ts';
import { post } from '../turn/targets.ts';

const MANY = '100000000';
const USERS = 32;
/** The same for all hosts: a database belongs to one oracle. */
const KEY = randomBytes(32).toString('hex');

/** Starts an empty PostgreSQL server for the duration of a function. */
export async function withPostgres<T>(use: (url: string) => Promise<T>): Promise<T> {
  const server = await startPostgres();
  try {
    return await use(server.url);
  } finally {
    await server.stop();
  }
}

export interface BenchSession {
  readonly sessionId: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Hosts on one database, and users who may call each of them. */
export class BenchCluster {
  readonly hosts: readonly ServerProcess[];
  private readonly tokens: readonly string[];
  private readonly cleanUp: () => Promise<void>;
  private opened = 0;

  private constructor(hosts: readonly ServerProcess[], cleanUp: () => Promise<void>) {
    this.hosts = hosts;
    this.tokens = mintTokens(USERS, hosts[0]?.did ?? '');
    this.cleanUp = cleanUp;
  }

  static async start(
    databaseUrl: string,
    { count, model: options }: { readonly count: number; readonly model: StubOptions },
  ): Promise<BenchCluster> {
    const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
    const model = await startServer(new URL('../servers/model.ts', import.meta.url), {
      args: [JSON.stringify(options)],
    });
    const shared = {
      PORT: '0',
      DATABASE_URL: databaseUrl,
      ORACLE_PRIVATE_KEY: KEY,
      MODEL: 'openai-compatible/stub',
      MODEL_BASE_URL: model.url,
      LOG_LEVEL: 'warn',
      RATE_LIMIT_PER_MINUTE: MANY,
      RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
      TURNS_PER_USER: MANY,
      TURNS_MAX: MANY,
      STREAMS_PER_USER: MANY,
      SESSIONS_PER_USER: '0',
    };
    const hosts: ServerProcess[] = [];
    const cleanUp = async () => {
      await Promise.all(hosts.map((host) => host.stop()));
      await model.stop();
      rmSync(dataDir, { recursive: true, force: true });
    };
    try {
      for (let i = 0; i < count; i++)
        hosts.push(
          await startServer(new URL('../servers/host.ts', import.meta.url), {
            env: { ...shared, DATA_DIR: join(dataDir, String(i)) },
          }),
        );
      return new BenchCluster(hosts, cleanUp);
    } catch (error) {
      await cleanUp();
      throw error;
    }
  }

  /** The address of a host; numbers beyond the last begin again with the first. */
  url(number: number): string {
    return this.hosts[number % this.hosts.length]?.url ?? '';
  }

  async openSession(): Promise<BenchSession> {
    const number = this.opened++;
    const headers = {
      'content-type': 'application/json',
      authorization: `Bearer ${this.tokens[number % this.tokens.length]}`,
      'x-auth-type': 'ucan',
    };
    const body = JSON.stringify({ title: 'Bench' });
    const { text } = await post({ url: this.url(number), path: '/sessions', headers, body });
    return { sessionId: JSON.parse(text).sessionId, headers };
  }

  /** Also ends the processes of the hosts and the model. */
  stop(): Promise<void> {
    return this.cleanUp();
  }
}
