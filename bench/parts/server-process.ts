import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

/** Linux counts the time of processes in hundredths of a second. */
const TICK_MS = 10;

export interface ServerProcess {
  readonly url: string;
  /** What audience its tokens need, if it asks for any. */
  readonly did?: string | undefined;
  /** Milliseconds of processor time so far, all threads. */
  cpuMs(): number;
  rssMegabytes(): number;
  stop(): Promise<void>;
}

interface StartOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a script as a process and waits until it says where it listens. */
export async function startServer(
  script: URL,
  { args = [], env = {} }: StartOptions = {},
): Promise<ServerProcess> {
  const child = fork(script, args, { env: { ...process.env, ...env } });
  const { url, did } = await firstWord(child);
  return {
    url,
    did,
    cpuMs: () => cpuMsOf(child.pid),
    rssMegabytes: () => rssOf(child.pid),
    stop: async () => {
      child.kill();
      await once(child, 'exit');
    },
  };
}

function firstWord(child: ChildProcess): Promise<{ url: string; did?: string }> {
  return new Promise((resolve, reject) => {
    child.once('message', (word) => resolve(word as { url: string }));
    child.once('exit', (code) => reject(new Error(`a server ended with ${code}`)));
  });
}

function cpuMsOf(pid: number | undefined): number {
  // The name in the second field may hold spaces, so fields are counted behind it.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function rssOf(pid: number | undefined): number {
  const kilobytes = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kilobytes) / 1024;
}
