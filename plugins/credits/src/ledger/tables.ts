import type { Kysely } from 'kysely';

/** The plugin's tables: amounts are whole numbers of the smallest unit, timestamps milliseconds. */
export interface CreditsTables {
  credits_accounts: AccountRow;
  credits_entries: EntryRow;
  credits_reservations: ReservationRow;
  credits_unpaid: UnpaidRow;
}

export type Tables = Kysely<CreditsTables>;

export interface AccountRow {
  owner: string;
  balance: number;
  /** Part of the balance that turns under way have set aside. */
  reserved: number;
  /** Sum of the owner's rows in `credits_unpaid`. */
  unpaid: number;
  last_entry: number;
  /** 1 once the owner has had what every user starts with. */
  is_welcomed: number;
  updated_at: number;
}

export type EntryKind = 'grant' | 'charge' | 'refund';

/** Rows are only ever added; the amounts of an owner add up to the balance. */
export interface EntryRow {
  owner: string;
  seq: number;
  kind: EntryKind;
  amount: number;
  balance: number;
  /** What the usage cost, of which `amount` was paid. */
  cost: number | null;
  session_id: string | null;
  request_id: string | null;
  usage: string | null;
  note: string | null;
  reference: string | null;
  created_at: number;
}

export interface ReservationRow {
  id: string;
  owner: string;
  session_id: string;
  request_id: string;
  /** What is set aside; 0 once settled for a holder that was gone. */
  amount: number;
  /** What the turn is known to have cost so far. */
  incurred: number;
  /** What was charged already. */
  charged: number;
  holder: string;
  lease_until: number;
  created_at: number;
}

export interface UnpaidRow {
  id: string;
  owner: string;
  amount: number;
  session_id: string;
  request_id: string;
  /** Set while somebody else collects it, so that the balance does not pay it too. */
  taken_at: number | null;
  created_at: number;
}
