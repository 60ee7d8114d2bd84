import { afterEach, describe, expect, it, vi } from 'vitest';
import { McpServer } from '../src/config.js';
import { Connection } from '../src/connection.js';
import { ConnectionPool } from '../src/server-directory.js';

const logger = { info() {}, warn() {}, error() {} };
const closed: string[] = [];

class TestConnection extends Connection {
  isInUse = false;

  override get isBusy(): boolean {
    return this.isInUse;
  }

  override async close(): Promise<void> {
    closed.push(this.name);
  }
}

const parseServer = (url = 'https://mcp.example') => McpServer.parse({ url });

function create(name: string): TestConnection {
  const fetch = () => Promise.reject(new Error('no network'));
  return new TestConnection({ name, server: parseServer(), context: { fetch, logger } });
}

let pool: ConnectionPool;

afterEach(async () => {
  vi.useRealTimers();
  await pool.close();
  closed.length = 0;
});

const take = (owner: string, name = 'demo', server = parseServer()) =>
  pool.take({ owner, name, server }, () => create(`${owner} ${name}`)) as TestConnection;

describe('ConnectionPool', () => {
  it('keeps one connection for each user and server', () => {
    pool = new ConnectionPool(logger);
    expect(take('alice')).toBe(take('alice'));
    expect(take('alice')).not.toBe(take('bob'));
    expect(take('alice')).not.toBe(take('alice', 'other'));
  });

  it('replaces a connection whose server was changed', () => {
    pool = new ConnectionPool(logger);
    const before = take('alice');
    expect(take('alice', 'demo', parseServer('https://other.example'))).not.toBe(before);
    expect(closed).toEqual(['alice demo']);
  });

  it('holds 200 connections: the oldest that is not in use makes room', () => {
    pool = new ConnectionPool(logger);
    const users = Array.from({ length: 200 }, (_, i) => `user ${i}`);
    const all = users.map((user) => take(user));
    (all[0] as TestConnection).isInUse = true;
    take('user 1');
    take('one more');
    expect(closed).toEqual(['user 2 demo']);
    for (const connection of all) connection.isInUse = true;
    take('one more').isInUse = true;
    expect(() => take('yet another')).toThrow('in use');
  });

  it('closes connections that were not used for ten minutes', async () => {
    vi.useFakeTimers();
    pool = new ConnectionPool(logger);
    take('alice');
    take('bob').isInUse = true;
    await vi.advanceTimersByTimeAsync(9 * 60_000);
    expect(closed).toEqual([]);
    await vi.advanceTimersByTimeAsync(3 * 60_000);
    expect(closed).toEqual(['alice demo']);
  });
});
