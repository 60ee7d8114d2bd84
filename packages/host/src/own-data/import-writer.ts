import { createHash } from 'node:crypto';
import type { ImportedCounts } from '@sibyl/plugin-kit';
import { Message } from '@sibyl/protocol';
import { abortableIterable } from '@sibyl/server-kit';
import type { z } from 'zod';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { DailyCharge } from '../files/upload-limits.js';
import type { ImportStore, MessageToStore } from '../store/own-data/import-store.js';
import type { StoredRow } from '../store/own-data/owner-rows.js';
import { SOURCES_STATE } from '../store/plugin-stores.js';
import type { RoomStore } from '../store/room-store.js';
import { messages as messagesTable } from '../store/schema/messages.js';
import {
  BranchRow,
  FeedbackRow,
  MessageRow,
  RoomStateRow,
  SessionRow,
  SourcesRow,
} from './archive-format.js';

const ROWS_PER_BATCH = 100;
const BATCH_LENGTH = 512 * 1024;
/** How often a session can be imported apart because it was continued differently here. */
const MAX_COPIES = 10;

export interface ImportedConversation {
  readonly id: string;
  readonly title: string;
  /** Milliseconds, as `updatedAt`. */
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly messages: readonly ImportedMessage[];
}

export interface ImportedMessage {
  readonly id: string;
  readonly type: 'human' | 'ai';
  readonly content: string;
  readonly createdAt: number;
}

/** The columns that name a message of the same session. */
const MESSAGE_ID_COLUMNS = [
  'id',
  'parent',
  'parent_id',
  'original_id',
  'first_id',
  'message_id',
  'active_message_id',
  'previous_message_id',
];

/** Stores the rows of a table for a user. */
export type RowImporter = (owner: string, rows: readonly StoredRow[]) => Promise<ImportedCounts>;

interface ImportWriterDeps {
  readonly owner: string;
  readonly store: ImportStore;
  readonly rooms: RoomStore;
  readonly oracle: OracleIdentity;
  readonly maxSessions: number;
  /** Charges rows to the day's limits of the user. */
  readonly openCharge: () => Pick<DailyCharge, 'add' | 'settle'>;
  /** The tables of plugins that know how to import their rows. */
  readonly importers: ReadonlyMap<string, RowImporter>;
  /** The tables that plugins would import which are not loaded. */
  readonly skippedTables: readonly string[];
}

/** What is compared with the stored sessions before an archive is stored. */
type ComparedRows = Readonly<
  Record<'sessions' | 'messages' | 'branches', AsyncIterable<StoredRow> | Iterable<StoredRow>>
>;

/** The ids under which a session may be stored. */
interface Copies {
  /** Those of sessions that contain nothing else in the place of its rows. */
  readonly same: Set<string>;
  /** One that no session has; undefined if there are too many copies. */
  readonly free: string | undefined;
}

/** What was imported. */
export interface ImportCounts {
  /** New rows by table. */
  readonly stored: Record<string, number>;
  /** Rows that were there already. */
  present: number;
  /** Rows that are invalid or exceed a limit, and skipped ones. */
  refused: number;
  /** Rows by table that only a plugin could import that is not loaded. */
  skipped?: Record<string, number>;
}

/**
 * Stores the content of an archive for one user. Everything is checked, because anyone can write an archive; nothing that
 * exists is changed; and ids are derived from the archive alone, so that importing it again adds nothing.
 */
export class ImportWriter {
  readonly counts: ImportCounts = { stored: {}, present: 0, refused: 0 };
  /** The ids under which the sessions of the archive are stored; at most as many as a user may have. */
  private readonly sessions = new Map<string, string>();
  /** The ids of files that have another id here. */
  private readonly files = new Map<string, string>();
  /** Those sessions of the archive whose ids exist here. */
  private readonly copies = new Map<string, Copies>();

  constructor(private readonly deps: ImportWriterDeps) {}

  /** The tables that are imported, in this order. */
  get tables(): readonly string[] {
    return [
      'sessions',
      'messages',
      'branches',
      'feedback',
      'session_state',
      'room_state',
      ...this.deps.importers.keys(),
    ];
  }

  get skippedTables(): readonly string[] {
    return this.deps.skippedTables;
  }

  /** Counts the rows of a table that cannot be imported. */
  async skip(table: string, rows: AsyncIterable<StoredRow>): Promise<void> {
    for await (const _ of rows) {
      this.counts.skipped ??= {};
      this.counts.skipped[table] = (this.counts.skipped[table] ?? 0) + 1;
      this.counts.refused += 1;
    }
  }

  /** Stores rows of a table; `ownRoom` is the user's room at the oracle of the archive. */
  async add(table: string, rows: AsyncIterable<StoredRow>, ownRoom?: string): Promise<void> {
    for await (const { batch, length } of toBatches(rows)) {
      await this.deps.store.assertRoom();
      const charge = this.deps.openCharge();
      charge.add(length);
      const before = this.countStored(table);
      await this.addBatch(table, batch, ownRoom);
      // An archive that is sent again costs what it adds.
      charge.settle((length * (this.countStored(table) - before)) / batch.length);
    }
  }

  private countStored(table: string): number {
    return this.counts.stored[table] ?? 0;
  }

  /** Finds the sessions that have other messages or branches here in the place of those of the archive: they are stored apart. */
  async compare(archive: ComparedRows): Promise<void> {
    const { store } = this.deps;
    for await (const row of archive.sessions) {
      const { data } = SessionRow.safeParse(row);
      if (data && !this.copies.has(data.id)) await this.findCopies(data.id, data.created_at);
    }
    for await (const row of archive.messages) {
      const { data } = MessageRow.safeParse(row);
      if (data)
        await this.dropCopies(data.session_id, data.id, (own) =>
          store.isTaken({ ...data, ...own }),
        );
    }
    for await (const row of archive.branches) {
      const { data } = BranchRow.safeParse(row);
      if (data)
        await this.dropCopies(data.session_id, data.first_id, (own) =>
          store.isBranchTaken({ ...data, ...own }),
        );
    }
  }

  /** Messages that name this file will name the one that was stored. */
  mapFile(id: string, stored: string): void {
    this.files.set(id, stored);
  }

  /** Throws if the import was deleted, as when its user is erased. */
  assertWanted(): Promise<void> {
    return this.deps.store.assertJob();
  }

  /** Stores a conversation of another service. */
  async addConversation(
    { messages, ...conversation }: ImportedConversation,
    signal: AbortSignal,
  ): Promise<void> {
    const { owner } = this.deps;
    const { id: original, title, createdAt, updatedAt } = conversation;
    const id = deriveId(createdAt, [owner, original]);
    let turn = 0;
    let parent: string | undefined;
    const rows: StoredRow[] = [];
    for (const [index, message] of messages.entries()) {
      turn += message.type === 'human' || turn === 0 ? 1 : 0;
      const messageId = deriveId(message.createdAt, [owner, original, message.id]);
      const place = { id: messageId, sessionId: id, turn, seq: index + 1, branch: 0, parent };
      const body = { ...message, ...place, owner, requestId: messageId, isComplete: true };
      rows.push({ ...messagesTable.toRow(body) });
      parent = messageId;
    }
    const session = {
      id,
      title,
      created_at: createdAt,
      last_updated_at: updatedAt,
      room_id: '',
      // Its messages follow: until then, a turn here continues after them.
      last_seq: rows.length,
      last_turn: turn,
    };
    await this.compare({ sessions: [session], messages: rows, branches: [] });
    const target = await this.addSession(session, '');
    if (target === undefined) return;
    await this.add('messages', abortableIterable(toIterable(rows), signal));
    await this.deps.store.completeSession(owner, target);
  }

  /** Continues the numbers of the imported sessions. */
  async complete(): Promise<void> {
    for (const id of this.sessions.values())
      await this.deps.store.completeSession(this.deps.owner, id);
  }

  private async addBatch(table: string, rows: readonly StoredRow[], ownRoom = ''): Promise<void> {
    const { owner, importers, store } = this.deps;
    switch (table) {
      case 'sessions':
        for (const row of rows) await this.addSession(row, ownRoom);
        return;
      case 'messages':
        return this.insert(
          'messages',
          await store.filterFitting(
            owner,
            rows.flatMap((row) => this.toOwnMessage(row)),
          ),
          rows.length,
        );
      case 'branches':
        return this.insert(
          'branches',
          rows.flatMap((row) => this.toOwnRow(BranchRow, row)),
          rows.length,
        );
      case 'feedback':
        return this.insert(
          'feedback',
          rows.flatMap((row) => this.toOwnRow(FeedbackRow, row)),
          rows.length,
        );
      case 'session_state':
        return this.addSources(rows);
      case 'room_state': {
        const states = await Promise.all(rows.map((row) => this.toOwnState(row, ownRoom)));
        return this.insert('room_state', states.flat(), rows.length);
      }
      default: {
        await this.assertWanted();
        const counts = await importers.get(table)?.(
          owner,
          rows.map((row) => this.renameSession(row)),
        );
        const { stored, refused } = counts ?? { stored: 0, refused: rows.length };
        this.count(table, { stored, valid: rows.length - refused, given: rows.length });
      }
    }
  }

  private addSources(rows: readonly StoredRow[]): Promise<void> {
    const { plugin, key } = SOURCES_STATE;
    const sources = rows.filter((row) => row.plugin === plugin && row.key === key);
    const own = sources
      .flatMap((row) => this.toOwnRow(SourcesRow, row))
      .map((row) => ({ ...row, value: this.renameFiles(String(row.value)) }));
    return this.insert('session_state', own, sources.length);
  }

  private async insert(table: string, rows: readonly StoredRow[], given: number): Promise<void> {
    const stored = await this.deps.store.insert(this.deps.owner, table, rows);
    this.count(table, { stored, valid: rows.length, given });
  }

  private count(
    table: string,
    { stored, valid, given }: { stored: number; valid: number; given: number },
  ): void {
    this.counts.stored[table] = (this.counts.stored[table] ?? 0) + stored;
    this.counts.present += valid - stored;
    this.counts.refused += given - valid;
  }

  /** The id under which it is stored; undefined if the row is invalid or the user has too many sessions. */
  private async addSession(row: StoredRow, ownRoom: string): Promise<string | undefined> {
    const { owner, oracle, store, maxSessions } = this.deps;
    const { data } = SessionRow.safeParse(row);
    const target = data && this.findTarget(data.id);
    if (!data || target === undefined) {
      this.counts.refused += 1;
      return undefined;
    }
    const { id: _, ...values } = data as StoredRow;
    const own = {
      ...renameMessages(values, data.id, target),
      id: target,
      last_seq: data.last_seq,
      last_turn: data.last_turn,
      oracle_did: oracle.did,
      oracle_name: oracle.name,
      oracle_entity_did: oracle.entityDid ?? null,
      room_id: await this.findRoom(data.room_id, ownRoom),
    };
    const outcome = await store.insertSession(owner, own, maxSessions);
    const [stored, valid] = [Number(outcome === 'stored'), Number(outcome !== 'refused')];
    this.count('sessions', { stored, valid, given: 1 });
    if (outcome === 'refused') return undefined;
    this.sessions.set(data.id, target);
    return target;
  }

  /** The id for a session: its own, or a derived one if another session has it. Undefined if there are too many copies. */
  private findTarget(id: string): string | undefined {
    const copies = this.copies.get(id);
    return copies ? [...copies.same, copies.free][0] : id;
  }

  private async findCopies(id: string, createdAt: number): Promise<void> {
    const { owner, store } = this.deps;
    const same = new Set<string>();
    let free = id;
    for (let n = 0; n < MAX_COPIES; n++) {
      const existing = await store.findSession(owner, free);
      if (!existing && n > 0) this.copies.set(id, { same, free });
      if (!existing) return;
      if (existing.createdAt === createdAt) same.add(free);
      free = deriveId(createdAt, [owner, free]);
    }
    this.copies.set(id, { same, free: undefined });
  }

  /** A copy with something else in the place of this message, or of the branch that it begins, is another session. */
  private async dropCopies(
    sessionId: string,
    messageId: string,
    isTaken: (place: { owner: string; session_id: string; id: string }) => Promise<boolean>,
  ): Promise<void> {
    const { owner } = this.deps;
    const copies = this.copies.get(sessionId);
    if (!copies) return;
    for (const copy of copies.same) {
      const id = renameMessage(messageId, sessionId, copy);
      if (await isTaken({ owner, session_id: copy, id })) copies.same.delete(copy);
    }
  }

  private toOwnMessage(row: StoredRow): MessageToStore[] {
    const { data } = MessageRow.safeParse(row);
    const target = data && this.sessions.get(data.session_id);
    if (!data || target === undefined) return [];
    const own = { ...renameMessages(data as StoredRow, data.session_id, target) };
    const content = this.renameFiles(data.content);
    const parts = data.parts === null ? null : this.renameFiles(data.parts);
    return [{ ...own, session_id: target, turn: data.turn, content, parts }];
  }

  private renameFiles(text: string): string {
    if (this.files.size === 0) return text;
    return text.replaceAll(/[0-9a-f-]{36}/g, (id) => this.files.get(id) ?? id);
  }

  /** A row of a plugin, which may name the session that it comes from. */
  private renameSession(row: StoredRow): StoredRow {
    const target = this.sessions.get(String(row.session_id));
    return target === undefined ? row : { ...row, session_id: target };
  }

  /** A row that belongs to a session of the archive. */
  private toOwnRow(schema: z.ZodType<{ session_id: string }>, row: StoredRow): StoredRow[] {
    const { data } = schema.safeParse(row);
    const target = data && this.sessions.get(data.session_id);
    if (!data || target === undefined) return [];
    return [{ ...renameMessages(data as StoredRow, data.session_id, target), session_id: target }];
  }

  private async toOwnState(row: StoredRow, ownRoom: string): Promise<StoredRow[]> {
    const { data } = RoomStateRow.safeParse(row);
    if (!data || data.data === null) return [];
    return [{ ...(data as StoredRow), room_id: await this.findRoom(data.room_id, ownRoom) }];
  }

  /** The user's own room with the other oracle becomes that with this one; other rooms keep their ids. */
  private async findRoom(roomId: string, ownRoom: string): Promise<string> {
    const { owner, oracle, rooms } = this.deps;
    if (roomId !== '' && roomId !== ownRoom) return roomId;
    await this.assertWanted();
    return rooms.getRoom({ owner, oracleDid: oracle.did });
  }
}

/** In a session with another id, messages need other ids too; and every id must be a UUID. */
const renameMessage = (id: string, sessionId: string, target: string): string =>
  sessionId === target && Message.shape.id.safeParse(id).success ? id : deriveId(0, [target, id]);

function renameMessages(row: StoredRow, sessionId: string, target: string): StoredRow {
  const renamed = MESSAGE_ID_COLUMNS.flatMap((column) => {
    const id = row[column];
    return typeof id === 'string' && id !== ''
      ? [[column, renameMessage(id, sessionId, target)]]
      : [];
  });
  return { ...row, ...Object.fromEntries(renamed) };
}

/** A UUID of version 8 that the text determines; it sorts by time like those of the host. */
function deriveId(time: number, text: readonly string[]): string {
  const bytes = createHash('sha256').update(JSON.stringify(text)).digest().subarray(0, 16);
  bytes.writeUIntBE(Math.min(time, 0xffffffffffff), 0, 6);
  bytes.writeUInt8(0x80 | (bytes.readUInt8(6) & 0x0f), 6);
  bytes.writeUInt8(0x80 | (bytes.readUInt8(8) & 0x3f), 8);
  const hex = bytes.toString('hex');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

async function* toIterable(rows: readonly StoredRow[]): AsyncGenerator<StoredRow> {
  yield* rows;
}

/** Few rows, or few characters, at a time: other writers must not wait long. */
async function* toBatches(
  rows: AsyncIterable<StoredRow>,
): AsyncGenerator<{ readonly batch: readonly StoredRow[]; readonly length: number }> {
  let batch: StoredRow[] = [];
  let length = 0;
  for await (const row of rows) {
    batch.push(row);
    length += JSON.stringify(row).length;
    if (batch.length < ROWS_PER_BATCH && length < BATCH_LENGTH) continue;
    yield { batch, length };
    batch = [];
    length = 0;
  }
  if (batch.length > 0) yield { batch, length };
}
