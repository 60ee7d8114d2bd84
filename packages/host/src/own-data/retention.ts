import { setImmediate as nextTick } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createClosingEvent, type EventBus } from '../bus/event-bus.js';
import type { Expiring } from '../store/own-data/expired-rows.js';
import type { Store } from '../store/store.js';
import type { Turns } from '../turns/turns.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const KINDS: readonly Expiring[] = ['sessions', 'receipts', 'activity'];

interface RetentionDeps {
  readonly store: Pick<Store, 'expired' | 'now'>;
  readonly turns: Pick<Turns, 'abort'>;
  readonly events: EventBus;
  readonly logger: Logger;
  /** Undefined: everything is kept. */
  readonly days: number | undefined;
}

/** How many rows RETENTION_DAYS deletes. */
export type RetentionPreview = Readonly<Record<Expiring | 'pausedRuns', number>>;

/** Counts what is older than a number of days; deletes nothing. */
export async function previewRetention(
  { expired, now }: RetentionDeps['store'],
  days: number,
): Promise<RetentionPreview> {
  const before = now() - days * DAY_MS;
  const counts = { sessions: 0, receipts: 0, activity: 0 };
  for (const kind of KINDS)
    for await (const rows of expired.find(kind, before)) counts[kind] += rows.length;
  return { ...counts, pausedRuns: await expired.countPaused(before) };
}

/** Deletes what is older than RETENTION_DAYS, one row after the other, on one host at a time. */
export class Retention {
  private isClosed = false;

  constructor(private readonly deps: RetentionDeps) {}

  async sweep(): Promise<void> {
    const { store, days } = this.deps;
    if (days === undefined) return;
    const before = store.now() - days * DAY_MS;
    await store.expired.alone(async () => {
      await this.endPaused(before);
      for (const kind of KINDS) await this.deleteAll(kind, before);
    });
  }

  close(): void {
    this.isClosed = true;
  }

  private async endPaused(before: number): Promise<void> {
    const { store, turns } = this.deps;
    for (const session of await store.expired.findPaused(before)) await turns.abort(session);
  }

  private async deleteAll(kind: Expiring, before: number): Promise<void> {
    const { logger } = this.deps;
    const { expired } = this.deps.store;
    let deleted = 0;
    for await (const rows of expired.find(kind, before))
      for (const row of rows) {
        if (this.isClosed) return;
        const isDeleted = await expired.delete(kind, row, before);
        deleted += Number(isDeleted);
        if (isDeleted && kind === 'sessions') this.closeSockets(row);
        await nextTick();
      }
    if (deleted > 0) logger.info({ kind, deleted }, 'rows older than RETENTION_DAYS deleted');
  }

  /** A page may show a session that is not used. */
  private closeSockets({ owner, id: sessionId }: { readonly owner: string; readonly id: string }) {
    const event = createClosingEvent('session_deleted', sessionId);
    this.deps.events.publish({ owner, sessionId }, event);
  }
}
