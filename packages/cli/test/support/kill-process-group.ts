import type { ChildProcess } from 'node:child_process';

/** Ends a process that was started detached and all that it started, if any is left. */
export function killProcessGroup({ pid = 0 }: ChildProcess): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
