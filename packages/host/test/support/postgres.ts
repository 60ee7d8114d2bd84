import type { TestProject } from 'vitest/node';
import { startPostgres } from './postgres-server.js';

declare module 'vitest' {
  interface ProvidedContext {
    /** The address of PostgreSQL, or why there is none. */
    postgres: { readonly url: string } | { readonly fault: string };
  }
}

/**
 * Provides one PostgreSQL for the test run: that of SIBYL_TEST_DATABASE_URL or DATABASE_URL, otherwise a new server. If
 * it cannot start, the tests that need it fail with the reason; the others run.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const url = process.env.SIBYL_TEST_DATABASE_URL || process.env.DATABASE_URL;
  if (url) {
    project.provide('postgres', { url });
    return async () => {};
  }
  try {
    const server = await startPostgres();
    project.provide('postgres', { url: server.url });
    return server.stop;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    project.provide('postgres', {
      fault: `PostgreSQL for the tests did not start: ${reason}\nSet SIBYL_TEST_DATABASE_URL to a server you have (the user must be allowed to create databases).`,
    });
    return async () => {};
  }
}
