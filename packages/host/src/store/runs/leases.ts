import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** A step of the time between two looks that no delay explains. */
const STEP_MS = 5_000;

/** Longer than any living host takes to renew its leases. */
const SETTLE_MS = 15_000;

/**
 * The time that leases of runs are measured in. It is not the time of day: that differs between hosts and may be
 * set while they run, and a living host must not be taken for dead because of it.
 */
export interface LeaseClock {
  /** Milliseconds; the same for all processes that share the database. */
  now(): number;
  /** Brings `now` up to date. */
  sync(): Promise<void>;
  /** Whether a lease is over or cannot have been made in this clock's time. */
  isOver(leaseUntil: number, leaseMs: number): boolean;
}

/**
 * For SQLite: the time since this machine started, which all of its processes share and which cannot be set. A lease that
 * ends too far ahead comes from before a restart of the machine.
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
 * For PostgreSQL: the time of the database, followed with a monotonic clock between looks. After a start or a step of
 * that time no lease counts as over until every living host has had time to renew its own.
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

/** The process that carries out runs, so that others can tell whether it still lives. */
export interface HostProcess {
  readonly id: string;
  /** True only where it is certain; of a process on another machine nothing is known. */
  isKnownDead(id: string): boolean;
}

/** Names this process by machine, process id and a random part, since process ids come again. */
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

/** Tells machines, boots and containers apart: process ids compare only within one of them. */
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
    // EPERM: it lives, but belongs to another user.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
