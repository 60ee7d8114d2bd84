import {
  bigint,
  defineTable,
  flag,
  type Row,
  type TableTypes,
  text,
} from '@sibyl/plugin-kit/tables';
import type { Kysely } from 'kysely';

/** Amounts are whole numbers of the smallest unit, timestamps milliseconds. */
export const accounts = defineTable(
  'credits_accounts',
  {
    owner: text(),
    balance: bigint(),
    /** Part of the balance that running turns have set aside. */
    reserved: bigint(),
    /** Sum of the owner's rows in `credits_unpaid`. */
    unpaid: bigint(),
    last_entry: bigint(),
    /** 1 once the owner has had the initial grant. */
    is_welcomed: flag(),
    updated_at: bigint(),
  },
  { key: ['owner'] },
);

export type AccountRow = Row<typeof accounts>;

export type EntryKind = 'grant' | 'charge' | 'refund';

/** Rows are only ever added; the amounts of an owner add up to the balance. */
export const entries = defineTable(
  'credits_entries',
  {
    owner: text(),
    seq: bigint(),
    kind: text<EntryKind>(),
    amount: bigint(),
    balance: bigint(),
    /** What the usage cost, of which `amount` was paid. */
    cost: bigint().optional(),
    session_id: text().optional(),
    request_id: text().optional(),
    usage: text().optional(),
    note: text().optional(),
    reference: text().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'seq'],
    indexes: { credits_entries_by_reference: { on: ['reference'], isUnique: true } },
    onErase: { keeps: 'without owner', reason: 'Payments, so that none counts twice' },
  },
);

export type EntryRow = Row<typeof entries>;

export const reservations = defineTable(
  'credits_reservations',
  {
    owner: text(),
    id: text(),
    session_id: text(),
    request_id: text(),
    /** What is set aside; 0 once settled for a holder that was gone. */
    amount: bigint(),
    /** The known cost of the turn. */
    incurred: bigint(),
    /** What was charged already. */
    charged: bigint(),
    holder: text(),
    lease_until: bigint(),
    created_at: bigint(),
  },
  { key: ['owner', 'id'], indexes: { credits_reservations_by_lease: { on: ['lease_until'] } } },
);

export type ReservationRow = Row<typeof reservations>;

export const unpaid = defineTable(
  'credits_unpaid',
  {
    owner: text(),
    id: text(),
    amount: bigint(),
    session_id: text(),
    request_id: text(),
    /** Set while another plugin collects it, so that the balance does not pay it too. */
    taken_at: bigint().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    indexes: { credits_unpaid_by_owner: { on: ['owner', 'created_at', 'id'] } },
  },
);

export type UnpaidRow = Row<typeof unpaid>;

export const tables = [accounts, entries, reservations, unpaid] as const;

export type CreditsTables = TableTypes<typeof tables>;

export type Tables = Kysely<CreditsTables>;
