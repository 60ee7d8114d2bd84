import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** The process that carries out runs, so that others can tell whether it still lives. */
export interface HostProcess {
  readonly id: string;
  /** True only where it is certain; of a process on another machine nothing is known. */
  isKnownDead(id: string): boolean;
}

/** Names this process by machine, process id and a random part, since process ids come again. */
export function createHostProcess(): HostProcess {
  const machine = machineName();
  const id = `${machine}/${process.pid}/${randomBytes(8).toString('hex')}`;
  return {
    id,
    isKnownDead: (other) => {
      const [otherMachine, pid] = other.split('/');
      return otherMachine === machine && !isAlive(Number(pid));
    },
  };
}

/** Tells machines, boots and containers apart: process ids compare only within one of them. */
function machineName(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}:${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}`;
  } catch {
    return hostname();
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives, but belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
