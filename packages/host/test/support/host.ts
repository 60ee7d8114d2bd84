import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOracleApp, type OracleApp, type OracleAppOptions } from '@sibyl/host';
import { pino } from 'pino';
import { addTwins } from './twins.js';

export interface TestHost {
  readonly app: OracleApp;
  readonly url: string;
  readonly did: string;
  readonly dataDir: string;
  /** Every log line, parsed. */
  readonly log: readonly Record<string, unknown>[];
  close(): Promise<void>;
}

export interface TestHostOptions extends Omit<OracleAppOptions, 'env' | 'logger'> {
  readonly env?: Readonly<Record<string, string>>;
  /** False for what works on the rows of all owners, such as retention; see `addTwins`. */
  readonly hasTwins?: boolean;
}

/** Starts a host on a free port with a new store. */
export async function startHost({
  env = {},
  hasTwins = process.env.SIBYL_TEST_TWINS === 'true',
  ...options
}: TestHostOptions = {}): Promise<TestHost> {
  const dataDir = env.DATA_DIR ?? (await mkdtemp(join(tmpdir(), 'sibyl-host-')));
  const log: Record<string, unknown>[] = [];
  const logger = pino({ level: 'debug' }, { write: (line) => void log.push(JSON.parse(line)) });
  const given = { PORT: '0', ...unlimited, ...env, DATA_DIR: dataDir };
  const app = await createOracleApp({ ...options, env: given, logger });
  if (hasTwins && !env.DATABASE_URL) await addTwins(dataDir);
  const url = await app.listen();
  return {
    app,
    url,
    did: app.did,
    dataDir,
    log,
    close: async () => {
      await app.close();
      if (!env.DATA_DIR) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Limits that no test reaches by default. */
const unlimited = {
  RATE_LIMIT_PER_MINUTE: '1000000',
  RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000',
  STREAMS_PER_USER: '1000000',
};
