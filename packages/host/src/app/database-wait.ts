import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Health, OracleError, type Readiness } from '@sibyl/protocol';
import { ConfigError } from '@sibyl/server-kit/environment';
import { HttpServer } from '@sibyl/server-kit/http-server';
import type { Logger } from 'pino';
import type { Config } from '../config/config.js';
import { toErrorBody } from '../http/replies.js';
import { probeDatabase } from '../store/open-database.js';
import { isUnreachable } from '../store/store-errors.js';

/** How long PostgreSQL may take to answer when a host starts: a machine may start both at once. */
const WAIT_MS = 60_000;
const RETRY_MS = 1_000;
const RETRY_AFTER_SECONDS = 5;

/** Starts a host again while PostgreSQL cannot be reached. Meanwhile the port says that the host is not ready. */
export async function whenDatabaseAnswers<T>(
  start: () => Promise<T>,
  { config, logger }: { readonly config: Config; readonly logger: Pick<Logger, 'warn'> },
): Promise<T> {
  const deadline = performance.now() + WAIT_MS;
  let server: HttpServer | undefined;
  try {
    for (;;) {
      try {
        return await start();
      } catch (error) {
        const reason = await findOutage(error, config);
        if (reason === undefined || performance.now() > deadline) throw error;
        if (!server) {
          logger.warn({ reason }, 'PostgreSQL cannot be reached: trying again for a minute');
          server = await openServer(config);
        }
      }
      await sleep(RETRY_MS);
    }
  } finally {
    await close(server);
  }
}

/** Why the database cannot be reached, if that may be why the host did not start. */
async function findOutage(error: unknown, config: Config): Promise<string | undefined> {
  if (!config.databaseUrl) return undefined;
  if (isUnreachable(error)) return describe(error);
  // The error of a plugin may hide that of the database.
  const fault = await probeDatabase(config).catch((reason) => reason);
  return isUnreachable(fault) ? describe(fault) : undefined;
}

/** The message of a ConfigError has several lines, and says that the host cannot start. */
const describe = (error: unknown): string =>
  error instanceof ConfigError
    ? error.issues.map(({ subject, problem }) => `${subject}: ${problem}`).join('; ')
    : String(error);

async function openServer({ port, host }: Config): Promise<HttpServer> {
  const server = new HttpServer({}, answer);
  await server.start({ port, host }, 1);
  return server;
}

async function close(server: HttpServer | undefined): Promise<void> {
  if (!server) return;
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
}

function answer({ url = '' }: IncomingMessage, response: ServerResponse): void {
  const { status, body } = buildAnswer(url.split('?', 1)[0] ?? '');
  response.statusCode = status;
  response.setHeader('Content-Type', 'application/json; charset=utf-8');
  if (status === 503) response.setHeader('Retry-After', RETRY_AFTER_SECONDS);
  response.end(JSON.stringify(body));
}

function buildAnswer(path: string): { readonly status: number; readonly body: object } {
  const timestamp = new Date().toISOString();
  if (path === '/health')
    return { status: 200, body: { status: 'ok', timestamp } satisfies Health };
  if (path === '/health/ready') return { status: 503, body: buildReadiness(timestamp) };
  return { status: 503, body: toErrorBody(new OracleError('store_unavailable'), randomUUID()) };
}

function buildReadiness(timestamp: string): Readiness {
  const unknown = { status: 'unknown', message: 'The host is starting' } as const;
  return {
    status: 'not_ready',
    timestamp,
    checks: {
      host: { status: 'failing', message: 'The host is starting' },
      store: { status: 'failing', message: 'The database cannot be reached' },
      disk: unknown,
      model: unknown,
      plugins: unknown,
    },
  };
}
