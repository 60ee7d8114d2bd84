import { randomUUID } from 'node:crypto';
import type { HostMessages, PluginDatabase } from '@sibyl/plugin-kit';
import { Ledger } from '../../src/ledger.js';
import { Reservations } from '../../src/reservations.js';
import { type CreditLines, noCreditLines } from '../../src/subscription.js';
import { UnpaidUsage } from '../../src/unpaid-usage.js';

interface LedgerChoice {
  readonly initialGrant?: number;
  readonly lines?: CreditLines;
  readonly clock?: () => number;
  readonly findDead?: HostMessages['findDead'];
}

/** The parts of the ledger on one database, as one process has them. */
export function openLedger(
  database: PluginDatabase,
  {
    initialGrant = 0,
    lines = noCreditLines,
    clock = Date.now,
    findDead = async () => [],
  }: LedgerChoice = {},
) {
  const hosts = { hostId: randomUUID(), findDead };
  const parts = { database, clock, initialGrant };
  return {
    ledger: new Ledger(parts),
    reservations: new Reservations({ ...parts, lines, hosts }),
    unpaid: new UnpaidUsage({ database, clock, onPaid: (owner) => lines.forget(owner) }),
  };
}

/** A turn, where it does not matter which. */
export const turn = { sessionId: 'session', requestId: 'request' };

/** How a turn ends that cost so much. */
export const costing = (cost: number) => ({ cost, usage: '[]' });
