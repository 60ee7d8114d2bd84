import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { StoreOptions } from '../../src/store/store.js';
import { SOURCE_ARGS } from './source-args.js';

export interface Burst {
  readonly owner: string;
  readonly count: number;
  readonly together: number;
}

export interface StoreProcess {
  /** The sessions that were acknowledged. */
  readonly acknowledged: readonly string[];
  untilAcknowledged(count: number): Promise<void>;
  kill(): void;
  /** Settles when the process has ended and its output is read. */
  readonly ended: Promise<{ readonly code: number | null; readonly stderr: string }>;
}

/** Writes a burst of sessions from a real second process. */
export function startBurst(
  { databaseUrl, dataDir }: Pick<StoreOptions, 'databaseUrl' | 'dataDir'>,
  burst: Burst,
): StoreProcess {
  const task = JSON.stringify({ databaseUrl, dataDir, ...burst });
  const child = spawn(process.execPath, [...SOURCE_ARGS, toPath('./store-burst.ts'), task], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const acknowledged: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => acknowledged.push(line));
  return {
    acknowledged,
    untilAcknowledged: async (count) => {
      while (acknowledged.length < count) {
        if (child.exitCode !== null) throw new Error(`It ended early with code ${child.exitCode}`);
        await sleep(1);
      }
    },
    kill: () => child.kill('SIGKILL'),
    ended: untilEnded(child),
  };
}

async function untilEnded(child: ChildProcess) {
  let stderr = '';
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  const [code] = await once(child, 'close');
  return { code, stderr };
}

function toPath(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}
