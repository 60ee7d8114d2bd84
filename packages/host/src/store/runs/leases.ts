import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** A change of the time between two readings that no delay explains. */
const STEP_MS = 5_000;

/** Longer than any running host takes to renew its leases. */
const SETTLE_MS = 15_000;

/**
 * The clock of run leases. It is not the time of day, which differs between hosts and may be changed while they run: a
 * running host must not be considered dead because of that.
 */
export interface LeaseClock {
  /** Milliseconds; the same for all processes that share the database. */
  now(): number;
  /** Updates `now`. */
  sync(): Promise<void>;
  /** Whether a lease has expired or is from before a restart of the clock. */
  isOver(leaseUntil: number, leaseMs: number): boolean;
}

/**
 * For SQLite: the time since this machine started, which all processes share and which cannot be set. A lease that ends
 * too far in the future is from before a restart of the machine.
 */
export function createMachineClock(): LeaseClock {
  const now = () => Number(process.hrtime.bigint() / 1_000_000n);
  return {
    now,
    sync: async () => {},
    isOver: (leaseUntil, leaseMs) => leaseUntil < now() || leaseUntil > now() + leaseMs,
  };
}

/**
 * For PostgreSQL: the time of the database, extrapolated with a monotonic clock. After the start, or after a jump of the
 * time, no lease expires until every running host has had time to renew its own.
 */
export class DatabaseClock implements LeaseClock {
  private readonly readTime: () => Promise<number>;
  private offset = 0;
  private steadySince: number | undefined;

  constructor(readTime: () => Promise<number>) {
    this.readTime = readTime;
  }

  now(): number {
    return performance.now() + this.offset;
  }

  async sync(): Promise<void> {
    const asked = performance.now();
    const time = await this.readTime();
    const offset = time - (asked + performance.now()) / 2;
    const isStep = Math.abs(offset - this.offset) > STEP_MS;
    if (this.steadySince === undefined || isStep) this.steadySince = performance.now();
    this.offset = offset;
  }

  isOver(leaseUntil: number): boolean {
    const steadyMs = performance.now() - (this.steadySince ?? Number.POSITIVE_INFINITY);
    return steadyMs >= SETTLE_MS && leaseUntil < this.now();
  }
}

/** The time of a given clock, for tests. */
export const fromClock = (clock: () => number): LeaseClock => ({
  now: clock,
  sync: async () => {},
  isOver: (leaseUntil) => leaseUntil < clock(),
});

/** Identifies the process that executes runs, so that others can check whether it is still running. */
export interface HostProcess {
  readonly id: string;
  /** False for a process on another machine, whose state is unknown. */
  isKnownDead(id: string): boolean;
}

/** Names this process by machine, process id and a random part, since process ids are reused. */
export function createHostProcess(): HostProcess {
  const machine = identifyMachine();
  const id = `${machine}/${process.pid}/${randomBytes(8).toString('hex')}`;
  return {
    id,
    isKnownDead: (other) => {
      const [otherMachine, pid] = other.split('/');
      return otherMachine === machine && !isAlive(Number(pid));
    },
  };
}

/** Different for each machine, boot and container: process ids are unique only within one of them. */
function identifyMachine(): string {
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
    // EPERM: it is running, but belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
