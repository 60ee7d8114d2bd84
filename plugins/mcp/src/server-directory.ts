import {
  createSafeFetch,
  type Logger,
  type Repetition,
  repeat,
  type SafeFetch,
  type SetupContext,
} from '@sibyl/plugin-kit';
import { type McpConfig, type McpServer, needsSignIn } from './config.js';
import { Connection, SignInRequiredError } from './connection.js';
import { createAuthProvider, createGrantStore, type OAuthClientFacts } from './grant.js';
import type { SignInTarget } from './sign-ins.js';
import type { UserServer, UserServers } from './user-servers.js';

/** Characters of the tool list of a connection that belongs to one user. */
const MAX_OWNED_LIST_LENGTH = 256 * 1024;

/** A server that a user can use. */
export interface ServerAccess {
  readonly name: string;
  readonly server: McpServer;
  /** Whether the user added it. */
  readonly isOwn: boolean;
  /** The connection for this user; throws SignInRequiredError if the user has to sign in. */
  connect(): Promise<Connection>;
}

export type DirectoryContext = Pick<
  SetupContext<McpConfig>,
  'config' | 'fetch' | 'logger' | 'secrets' | 'publicUrl' | 'oracle'
>;

/** All servers: those of the operator, and those that users added for themselves. */
export class ServerDirectory {
  readonly facts: OAuthClientFacts;
  private readonly shared: ReadonlyMap<string, Connection>;
  private readonly pool: ConnectionPool;
  /** `OUTGOING_ALLOW` opens addresses for the operator's servers, which users must not reach in another way. */
  private readonly userFetch: SafeFetch;

  constructor(
    private readonly context: DirectoryContext,
    private readonly users: UserServers | undefined,
  ) {
    const { config, publicUrl, oracle, logger } = context;
    this.facts = { oracleName: oracle.name, publicUrl };
    this.pool = new ConnectionPool(logger);
    this.userFetch = createSafeFetch({ allow: config.MCP_USER_SERVERS_ALLOW });
    const withoutSignIn = Object.entries(config.MCP_SERVERS).filter(([, s]) => !needsSignIn(s));
    this.shared = new Map(
      withoutSignIn.map(([name, server]) => [name, new Connection({ name, server, context })]),
    );
  }

  /** Connects now, so that the first turn need not wait. */
  warmUp(): void {
    for (const connection of this.shared.values()) connection.tools().catch(() => undefined);
  }

  isOperatorServer(name: string): boolean {
    return Object.hasOwn(this.context.config.MCP_SERVERS, name);
  }

  /** The servers of the operator first; one that a user gave the same name later is left out. */
  async list(owner: string): Promise<ServerAccess[]> {
    const operator = Object.entries(this.context.config.MCP_SERVERS);
    const own = (await this.users?.list(owner)) ?? [];
    return [
      ...operator.map(([name, server]) => this.toAccess(owner, name, server)),
      ...own
        .filter(({ name }) => !this.isOperatorServer(name))
        .map((server) => this.toOwnAccess(owner, server)),
    ];
  }

  async findSignInTarget(owner: string, name: string): Promise<SignInTarget | undefined> {
    const { config, fetch } = this.context;
    if (this.isOperatorServer(name)) {
      const server = config.MCP_SERVERS[name];
      return server && needsSignIn(server) ? { owner, name, server, fetch } : undefined;
    }
    const own = await this.users?.find(owner, name);
    if (own?.problem) throw own.problem;
    return own && { owner, name, server: own.server, fetch: this.userFetch };
  }

  /** Connects to a server before it is added. */
  async probe(owner: string, added: UserServer): Promise<void> {
    const connection = this.createOwned(owner, { ...added, fetch: this.userFetch });
    try {
      await connection.tools();
    } finally {
      await connection.close();
    }
  }

  /** The next use opens a new connection. */
  disconnect(owner: string, name: string): void {
    this.pool.drop(owner, name);
  }

  async close(): Promise<void> {
    const shared = [...this.shared.values()].map((connection) => connection.close());
    await Promise.all([...shared, this.pool.close()]);
  }

  private toAccess(owner: string, name: string, server: McpServer): ServerAccess {
    if (!needsSignIn(server)) {
      const shared = this.shared.get(name);
      const connect = async () => shared ?? Promise.reject(new Error(`${name} is not connected`));
      return { name, server, isOwn: false, connect };
    }
    const target = { owner, name, server, fetch: this.context.fetch };
    const connect = async () => {
      const grant = await this.openGrant(target).read();
      if (!grant?.tokens) throw new SignInRequiredError(name);
      return this.pool.take(target, () => this.createOwned(owner, target));
    };
    return { name, server, isOwn: false, connect };
  }

  private toOwnAccess(owner: string, { name, server, problem }: UserServer): ServerAccess {
    const target = { owner, name, server, fetch: this.userFetch };
    const connect = async () => {
      if (problem) throw problem;
      return this.pool.take(target, () => this.createOwned(owner, target));
    };
    return { name, server, isOwn: true, connect };
  }

  private createOwned(owner: string, target: Omit<SignInTarget, 'owner'>): Connection {
    const { name, server, fetch } = target;
    const store = this.openGrant({ ...target, owner });
    return new Connection({
      name,
      server,
      context: { fetch, logger: this.context.logger },
      auth: createAuthProvider({ name, server, store, facts: this.facts }),
      isOwned: true,
      maxListLength: MAX_OWNED_LIST_LENGTH,
    });
  }

  private openGrant({ owner, name, server }: SignInTarget) {
    return createGrantStore(this.context.secrets(owner), name, server.url);
  }
}

/** Connections of users, each with its list of tools and up to one open stream. */
const MAX_CONNECTIONS = 200;
const IDLE_MS = 10 * 60_000;
const SWEEP_MS = 60_000;

/** A server of a user, or one at which the user signs in. */
interface PoolKey {
  readonly owner: string;
  readonly name: string;
  readonly server: McpServer;
}

interface Entry {
  readonly connection: Connection;
  /** The server as it was configured when the connection was created. */
  readonly settings: string;
  usedAt: number;
}

/** Keeps the connections that belong to single users, and closes those that are not used. */
export class ConnectionPool {
  private readonly entries = new Map<string, Entry>();
  private readonly sweeping: Repetition;

  constructor(logger: Logger) {
    this.sweeping = repeat(async () => this.closeIdle(), { everyMs: SWEEP_MS, logger });
  }

  /** The user's connection to a server; a new one if there is none, or the server was changed. */
  take({ owner, name, server }: PoolKey, create: () => Connection): Connection {
    const key = toKey(owner, name);
    const settings = JSON.stringify(server);
    const known = this.entries.get(key);
    if (known?.settings === settings) {
      known.usedAt = performance.now();
      this.entries.delete(key);
      this.entries.set(key, known);
      return known.connection;
    }
    this.remove(key);
    this.makeRoom();
    const connection = create();
    this.entries.set(key, { connection, settings, usedAt: performance.now() });
    return connection;
  }

  /** Closes the user's connection to a server, if there is one. */
  drop(owner: string, name: string): void {
    this.remove(toKey(owner, name));
  }

  async close(): Promise<void> {
    await this.sweeping.stop();
    const open = [...this.entries.values()];
    this.entries.clear();
    await Promise.all(open.map(({ connection }) => connection.close()));
  }

  /** The oldest that is not in use makes room. */
  private makeRoom(): void {
    if (this.entries.size < MAX_CONNECTIONS) return;
    for (const [key, { connection }] of this.entries) {
      if (connection.isBusy) continue;
      this.remove(key);
      return;
    }
    throw new Error('All connections to MCP servers of users are in use; try again later');
  }

  private closeIdle(): void {
    const oldest = performance.now() - IDLE_MS;
    for (const [key, { connection, usedAt }] of this.entries)
      if (usedAt < oldest && !connection.isBusy) this.remove(key);
  }

  private remove(key: string): void {
    const entry = this.entries.get(key);
    this.entries.delete(key);
    entry?.connection.close().catch(() => undefined);
  }
}

const toKey = (owner: string, name: string) => JSON.stringify([owner, name]);
