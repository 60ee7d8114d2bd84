import { randomUUID } from 'node:crypto';
import type { AccountRow, EntryRow, Tables } from './tables.js';

/** The turn that usage belongs to. */
export interface UsedBy {
  readonly sessionId: string;
  readonly requestId: string;
}

interface Charge extends UsedBy {
  /** JSON of what was used. */
  readonly usage?: string | undefined;
  readonly note?: string | undefined;
}

interface Grant {
  readonly note?: string | undefined;
  readonly reference?: string | undefined;
}

type NewEntry = Pick<EntryRow, 'kind' | 'amount'> & Partial<EntryRow>;

/**
 * One owner's account, locked for the rest of a unit. Amounts change here alone: the balance never
 * falls below nothing, and what it cannot pay is kept as unpaid. Nothing is stored before `save`.
 */
export class LockedAccount {
  private readonly tables: Tables;
  private readonly row: AccountRow;

  private constructor(tables: Tables, row: AccountRow) {
    this.tables = tables;
    this.row = row;
  }

  /** Opens the account if there is none. Inside `writeFor`, so that others wait without a connection. */
  static async lock(tables: Tables, owner: string, now: number): Promise<LockedAccount> {
    const empty = { balance: 0, reserved: 0, unpaid: 0, last_entry: 0, is_welcomed: 0 };
    const row = await tables
      .insertInto('credits_accounts')
      .values({ owner, ...empty, updated_at: now })
      .onConflict((c) => c.column('owner').doUpdateSet({ updated_at: now }))
      .returningAll()
      .executeTakeFirstOrThrow();
    return new LockedAccount(tables, row);
  }

  /** As `lock`, but undefined for a user without an account. */
  static async lockExisting(
    tables: Tables,
    owner: string,
    now: number,
  ): Promise<LockedAccount | undefined> {
    const row = await tables
      .updateTable('credits_accounts')
      .set({ updated_at: now })
      .where('owner', '=', owner)
      .returningAll()
      .executeTakeFirst();
    return row && new LockedAccount(tables, row);
  }

  get balance(): number {
    return this.row.balance;
  }

  /** Adds the initial grant, once. */
  async welcome(amount: number): Promise<void> {
    if (this.row.is_welcomed) return;
    this.row.is_welcomed = 1;
    if (amount > 0) await this.grant(amount, { note: 'initial grant' });
  }

  async grant(amount: number, { note, reference }: Grant): Promise<void> {
    this.row.balance += amount;
    await this.post({ kind: 'grant', amount, note: note ?? null, reference: reference ?? null });
    await this.payUnpaid();
  }

  /** Sets an amount aside, if the balance and a line of credit beyond it allow. */
  reserve(amount: number, line: number): boolean {
    const spendable = this.free + Math.max(0, line - this.row.unpaid);
    if (spendable < amount) return false;
    this.row.reserved += amount;
    return true;
  }

  release(amount: number): void {
    this.row.reserved -= amount;
  }

  /** Takes a cost out of the balance as far as other turns have not set it aside; the rest stays unpaid. */
  async charge(cost: number, { sessionId, requestId, usage, note }: Charge): Promise<void> {
    if (cost <= 0) return;
    const paid = Math.min(cost, Math.max(0, this.free));
    this.row.balance -= paid;
    await this.post({
      kind: 'charge',
      amount: 0 - paid,
      cost,
      session_id: sessionId,
      request_id: requestId,
      usage: usage ?? null,
      note: note ?? null,
    });
    if (cost > paid) await this.leaveUnpaid(cost - paid, { sessionId, requestId });
  }

  /** Refunds what was charged too much. */
  async refund(amount: number, { sessionId, requestId }: UsedBy): Promise<void> {
    this.row.balance += amount;
    const about = { session_id: sessionId, request_id: requestId };
    await this.post({ kind: 'refund', amount, ...about });
  }

  /** Pays unpaid usage, oldest first, unless another plugin collects it. */
  async payUnpaid(): Promise<void> {
    if (this.row.unpaid === 0 || this.free <= 0) return;
    const rows = await this.tables
      .selectFrom('credits_unpaid')
      .selectAll()
      .where('owner', '=', this.row.owner)
      .where('taken_at', 'is', null)
      .orderBy('created_at')
      .orderBy('id')
      .execute();
    for (const row of rows) {
      const paid = Math.min(row.amount, this.free);
      if (paid === 0) return;
      this.row.balance -= paid;
      await this.post({
        kind: 'charge',
        amount: -paid,
        session_id: row.session_id,
        request_id: row.request_id,
        note: 'usage left unpaid before',
      });
      await this.strikeUnpaid(row.id, paid);
    }
  }

  /** Makes an unpaid amount smaller, and drops it at nothing. */
  async strikeUnpaid(id: string, amount: number): Promise<void> {
    this.row.unpaid -= amount;
    await this.tables
      .updateTable('credits_unpaid')
      .set((e) => ({ amount: e('amount', '-', amount) }))
      .where('owner', '=', this.row.owner)
      .where('id', '=', id)
      .execute();
    await this.tables
      .deleteFrom('credits_unpaid')
      .where('owner', '=', this.row.owner)
      .where('id', '=', id)
      .where('amount', '<=', 0)
      .execute();
  }

  async save(): Promise<void> {
    const { owner, ...values } = this.row;
    await this.tables
      .updateTable('credits_accounts')
      .set(values)
      .where('owner', '=', owner)
      .execute();
  }

  /** What is neither spent nor set aside; below nothing where a line of credit was set aside. */
  private get free(): number {
    return this.row.balance - this.row.reserved;
  }

  private async leaveUnpaid(amount: number, { sessionId, requestId }: UsedBy): Promise<void> {
    const { owner, updated_at: now } = this.row;
    this.row.unpaid += amount;
    await this.tables
      .insertInto('credits_unpaid')
      .values({
        id: randomUUID(),
        owner,
        amount,
        session_id: sessionId,
        request_id: requestId,
        taken_at: null,
        created_at: now,
      })
      .execute();
  }

  private async post(entry: NewEntry): Promise<void> {
    const { owner, balance, updated_at: now } = this.row;
    this.row.last_entry += 1;
    const place = { owner, seq: this.row.last_entry, balance, created_at: now };
    await this.tables
      .insertInto('credits_entries')
      .values({ ...place, ...entry })
      .execute();
  }
}
