import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';

/** Linux counts the time of processes in hundredths of a second. */
const TICK_MS = 10;

/** A server that does not stop by then is killed. */
const STOP_TIMEOUT_MS = 10_000;

export interface ServerProcess {
  readonly url: string;
  readonly pid: number | undefined;
  /** The audience that its tokens need, if it needs tokens. */
  readonly did?: string | undefined;
  /** Milliseconds of processor time since its start, all threads. */
  cpuMs(): number;
  rssMegabytes(): number;
  /** At the moment, or after a full garbage collection. */
  memoryUsage(when?: 'now' | 'after-collection'): Promise<NodeJS.MemoryUsage>;
  stop(): Promise<void>;
}

interface StartOptions {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a script as a process and waits until it sends its URL. */
export async function startServer(
  script: URL,
  { args = [], env = {} }: StartOptions = {},
): Promise<ServerProcess> {
  const child = fork(script, args, { env: { ...process.env, ...env } });
  const { url, did } = await receiveAddress(child);
  return {
    url,
    pid: child.pid,
    did,
    cpuMs: () => readProcessCpuMs(child.pid),
    rssMegabytes: () => readRss(child.pid),
    memoryUsage: (when = 'now') => requestMemoryUsage(child, when),
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, 'exit');
      child.kill();
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await exited;
      clearTimeout(timer);
    },
  };
}

function receiveAddress(child: ChildProcess): Promise<{ url: string; did?: string }> {
  return new Promise((resolve, reject) => {
    child.once('message', (message) => resolve(message as { url: string }));
    child.once('exit', (code) => reject(new Error(`A server exited with ${code}`)));
  });
}

/** Milliseconds of processor time of a process since its start, all threads. */
export function readProcessCpuMs(pid: number | undefined): number {
  // The name in the second field may contain spaces, so the fields are counted after it.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function readRss(pid: number | undefined): number {
  const kilobytes = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kilobytes) / 1024;
}

async function requestMemoryUsage(child: ChildProcess, when: string): Promise<NodeJS.MemoryUsage> {
  child.send(when);
  const [{ memory }] = (await once(child, 'message')) as [{ memory: NodeJS.MemoryUsage }];
  return memory;
}

/** Mints tokens, each of a new user. */
export function mintTokens(count: number, audience: string): string[] {
  return Array.from({ length: count }, () => {
    const minted = mintAuthInvocation({ signer: generateSigner(), audience });
    if (minted.error) throw new Error(minted.error.detail);
    return minted.ok.token;
  });
}
