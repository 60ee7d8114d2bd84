import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { pino } from 'pino';
import { onTestFinished } from 'vitest';
import { type Cluster, type ClusterOptions, joinCluster } from '../../src/bus/cluster.js';
import { SOURCE_ARGS } from './source-args.js';

export type MemberOptions = Omit<ClusterOptions, 'logger'>;

/** Joins the hosts of a database for the duration of a test. */
export async function joinForTest(options: MemberOptions): Promise<Cluster> {
  const cluster = await joinCluster({ ...options, logger: pino({ level: 'silent' }) });
  let closing: Promise<void> | undefined;
  const close = () => (closing ??= cluster.close());
  onTestFinished(close);
  return { ...cluster, close };
}

/** A host in another process. */
export interface MemberProcess {
  readonly hostId: string;
  readonly child: ChildProcess;
  /** Ends it without any cleanup. */
  kill(): Promise<void>;
}

/** Starts a process that joins the hosts of a database; rejects with its output if it cannot. */
export async function startMember(
  options: MemberOptions,
  launcher: readonly string[] = [],
): Promise<MemberProcess> {
  const program = [...SOURCE_ARGS, toPath('./cluster-member.ts')];
  const [command = '', ...args] = [
    ...launcher,
    process.execPath,
    ...program,
    JSON.stringify(options),
  ];
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'close');
  const kill = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  onTestFinished(kill);
  let output = '';
  child.stderr.on('data', (data) => {
    output += data;
  });
  const [first] = await Promise.race([once(child.stdout, 'data'), ended]);
  if (child.exitCode !== null || first === null) {
    await ended;
    throw new Error(output);
  }
  return { hostId: String(first).trim(), child, kill };
}

const toPath = (file: string) => fileURLToPath(new URL(file, import.meta.url));

/** Runs a statement as the administrator of the database. */
export async function runStatement(
  url: string,
  statement: string,
  values: readonly unknown[] = [],
): Promise<readonly Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(statement, [...values])).rows;
  } finally {
    await client.end();
  }
}

/** Ends sessions of a host as a failure of the network does: by role, or all of them. */
export async function terminateSessions(url: string, hostId: string, role = '%'): Promise<number> {
  const rows = await runStatement(
    url,
    'select pg_terminate_backend(pid) from pg_stat_activity where application_name like $1',
    [`sibyl ${hostId} ${role}`],
  );
  return rows.length;
}
