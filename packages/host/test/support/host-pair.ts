import { afterAll, beforeAll } from 'vitest';
import { startHost, type TestHost, type TestHostOptions } from './host.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from './test-database.js';

/** Two hosts on one PostgreSQL database during the surrounding file. */
export interface HostPair {
  readonly a: TestHost;
  readonly b: TestHost;
  readonly database: TestDatabase;
  /** Between the second host and PostgreSQL, for its connections that keep their session. */
  readonly busProxy: TcpProxy;
  /** The same, for the connections of its store. */
  readonly storeProxy: TcpProxy;
}

export function useHostPair(
  options: () => TestHostOptions | Promise<TestHostOptions> = () => ({}),
): HostPair {
  const parts: Partial<{ -readonly [Part in keyof HostPair]: HostPair[Part] }> = {};
  beforeAll(async () => {
    const database = await createTestDatabase('postgres');
    parts.database = database;
    const busProxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
    parts.busProxy = busProxy;
    const storeProxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
    parts.storeProxy = storeProxy;
    const { env, ...others } = await options();
    const shared = { ...env, ...database.env };
    parts.a = await startHost({ ...others, env: shared });
    const proxied = { DATABASE_URL: storeProxy.url, DATABASE_DIRECT_URL: busProxy.url };
    parts.b = await startHost({ ...others, env: { ...shared, ...proxied } });
  });
  afterAll(async () => {
    await parts.a?.close();
    await parts.b?.close();
    await parts.busProxy?.close();
    await parts.storeProxy?.close();
    await parts.database?.drop();
  });
  return parts as HostPair;
}
