import { type Logger, type Repetition, repeat } from '@sibyl/plugin-kit';
import type { McpServer } from './config.js';
import type { Connection } from './connection.js';

/** Connections of users, each with its list of tools and up to one open stream. */
const MAX_CONNECTIONS = 200;
const IDLE_MS = 10 * 60_000;
const SWEEP_MS = 60_000;

/** A server of a user, or one at which the user signs in. */
export interface PoolKey {
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
