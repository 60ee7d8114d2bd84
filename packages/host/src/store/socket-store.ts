import { sql } from 'kysely';
import type { CallEvent, ClientCallResult, SessionKey } from '../bus/event-bus.js';
import type {
  SharedCall,
  SocketCount,
  SocketDirectory,
  SocketUser,
  StoredCall,
} from '../bus/socket-presence.js';
import type { StoreContext } from './database.js';

/** Longer than a host is disconnected, or its messages are late, before it is considered ended. */
const RECENT_TURN_MS = 60_000;
const SESSIONS_PER_QUERY = 1_000;

/** Which hosts hold sockets of a session, and the open calls to pages, in the database that the hosts share. */
export class SocketStore implements SocketDirectory {
  private readonly context: StoreContext;
  private readonly hostId: string;

  constructor(context: StoreContext, hostId: string) {
    this.context = context;
    this.hostId = hostId;
  }

  async setCounts(counts: readonly SocketCount[]): Promise<void> {
    const open = counts.filter(({ sockets }) => sockets > 0).map((each) => this.toRow(each));
    const closed = counts.filter(({ sockets }) => sockets === 0);
    await this.context.database.write(async (tables) => {
      if (open.length > 0)
        await tables
          .insertInto('socket_hosts')
          .values(open)
          .onConflict((c) =>
            c
              .columns(['owner', 'session_id', 'host_id'])
              .doUpdateSet((e) => ({ sockets: e.ref('excluded.sockets') })),
          )
          .execute();
      for (const { owner, sessionId } of closed)
        await tables
          .deleteFrom('socket_hosts')
          .where('owner', '=', owner)
          .where('session_id', '=', sessionId)
          .where('host_id', '=', this.hostId)
          .execute();
    });
  }

  async findHosts({ owner, sessionId }: SessionKey): Promise<readonly string[]> {
    const rows = await this.context.database.tables
      .selectFrom('socket_hosts')
      .select('host_id')
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('host_id', '!=', this.hostId)
      .execute();
    return rows.map((row) => row.host_id);
  }

  /** Users with their open sockets at all hosts, those with most first. */
  async listUsers(limit: number): Promise<SocketUser[]> {
    const rows = await this.context.database.tables
      .selectFrom('socket_hosts')
      .select((e) => ['owner', e.fn.sum('sockets').as('sockets')])
      .groupBy('owner')
      .orderBy('sockets', 'desc')
      .limit(limit)
      .execute();
    return rows.map(({ owner, sockets }) => ({ did: owner, count: Number(sockets) }));
  }

  async countElsewhere(owner: string): Promise<number> {
    const row = await this.context.database.tables
      .selectFrom('socket_hosts')
      .select((e) => e.fn.sum('sockets').as('sockets'))
      .where('owner', '=', owner)
      .where('host_id', '!=', this.hostId)
      .executeTakeFirst();
    return Number(row?.sockets ?? 0);
  }

  /** Does not rely on the counts of sockets, which a crash of PostgreSQL removes. */
  async findTurnsElsewhere(
    sessions: readonly SessionKey[],
    hostId?: string,
  ): Promise<readonly SessionKey[]> {
    const found: SessionKey[] = [];
    for (let i = 0; i < sessions.length; i += SESSIONS_PER_QUERY) {
      const some = sessions.slice(i, i + SESSIONS_PER_QUERY);
      found.push(...(await this.pickTurnsElsewhere(some, hostId)));
    }
    return found;
  }

  private pickTurnsElsewhere(
    sessions: readonly SessionKey[],
    hostId: string | undefined,
  ): Promise<readonly SessionKey[]> {
    const { database, clock } = this.context;
    const keys = sessions.map(({ owner, sessionId }) => sql`(${owner}, ${sessionId})`);
    return (
      database.tables
        .selectFrom('runs')
        .select(['owner', 'session_id as sessionId'])
        .distinct()
        .where(sql<boolean>`(owner, session_id) in (values ${sql.join(keys)})`)
        // A paused run has no host any more.
        .where((e) =>
          e.or([
            e('host_id', 'is', null),
            hostId === undefined ? e('host_id', '!=', this.hostId) : e('host_id', '=', hostId),
          ]),
        )
        .where((e) =>
          e.or([e('status', '=', 'running'), e('updated_at', '>', clock() - RECENT_TURN_MS)]),
        )
        .execute()
    );
  }

  async listHosts(): Promise<readonly string[]> {
    const { tables } = this.context.database;
    const hosts = tables.selectFrom('socket_hosts').select('host_id');
    const rows = await hosts.union(tables.selectFrom('page_calls').select('host_id')).execute();
    return rows.map((row) => row.host_id);
  }

  async removeHost(hostId: string): Promise<void> {
    await this.context.database.write(async (tables) => {
      for (const table of ['socket_hosts', 'page_calls'] as const)
        await tables.deleteFrom(table).where('host_id', '=', hostId).execute();
    });
  }

  async addCall(key: SessionKey, call: CallEvent): Promise<void> {
    const row = this.toCallRow(key, call.payload.toolCallId);
    await this.context.database.write(async (tables) => {
      await tables
        .insertInto('page_calls')
        .values({ ...row, host_id: this.hostId, call: JSON.stringify(call) })
        // The answer may have been faster.
        .onConflict((c) =>
          c
            .columns(['owner', 'session_id', 'call_id'])
            .doUpdateSet((e) => ({ call: e.ref('excluded.call') })),
        )
        .execute();
    });
  }

  async removeCall({ owner, sessionId }: SessionKey, callId: string): Promise<void> {
    await this.context.database.write(async (tables) => {
      await tables
        .deleteFrom('page_calls')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where('call_id', '=', callId)
        .execute();
    });
  }

  async listCalls({ owner, sessionId }: SessionKey): Promise<readonly SharedCall[]> {
    const rows = await this.context.database.tables
      .selectFrom('page_calls as c')
      .leftJoin('socket_hosts as h', (join) =>
        join
          .onRef('h.owner', '=', 'c.owner')
          .onRef('h.session_id', '=', 'c.session_id')
          .onRef('h.host_id', '=', 'c.delivered_by'),
      )
      .select(['c.call', 'c.host_id', 'c.delivered_by', 'h.host_id as holder'])
      .where('c.owner', '=', owner)
      .where('c.session_id', '=', sessionId)
      .where('c.answer', 'is', null)
      .where('c.call', 'is not', null)
      .execute();
    return rows.map((row) => ({
      call: JSON.parse(row.call ?? ''),
      hostId: row.host_id,
      // A host that holds no socket of the session any more has lost the page that received it.
      isDelivered: row.holder !== null && row.delivered_by !== this.hostId,
    }));
  }

  async markDelivered({ owner, sessionId }: SessionKey, callId: string): Promise<void> {
    await this.context.database.write(async (tables) => {
      await tables
        .updateTable('page_calls')
        .set({ delivered_by: this.hostId })
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where('call_id', '=', callId)
        .execute();
    });
  }

  claimDelivery({ owner, sessionId }: SessionKey, callId: string): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const call = { owner, session_id: sessionId, call_id: callId };
      // A host that holds no socket of the session any more has lost the page that received it.
      const { numUpdatedRows } = await tables
        .updateTable('page_calls')
        .set({ delivered_by: this.hostId })
        .where((e) => e.and(call))
        .where(({ or, eb, not, exists, selectFrom }) =>
          or([
            eb('delivered_by', 'is', null),
            eb('delivered_by', '=', this.hostId),
            not(
              exists(
                selectFrom('socket_hosts')
                  .select('socket_hosts.host_id')
                  .where('socket_hosts.owner', '=', owner)
                  .where('socket_hosts.session_id', '=', sessionId)
                  .whereRef('socket_hosts.host_id', '=', 'page_calls.delivered_by'),
              ),
            ),
          ]),
        )
        .executeTakeFirstOrThrow();
      if (numUpdatedRows > 0n) return true;
      const row = await tables
        .selectFrom('page_calls')
        .select('call_id')
        .where((e) => e.and(call))
        .executeTakeFirst();
      // One that is not stored yet has no other page.
      return row === undefined;
    });
  }

  async answerCall(key: SessionKey, hostId: string, answer: ClientCallResult): Promise<boolean> {
    const row = this.toCallRow(key, answer.toolCallId);
    return this.context.database.write(async (tables) => {
      const stored = await tables
        .insertInto('page_calls')
        .values({ ...row, host_id: hostId, answer: JSON.stringify(answer) })
        .onConflict((c) =>
          c
            .columns(['owner', 'session_id', 'call_id'])
            .doUpdateSet((e) => ({ answer: e.ref('excluded.answer') }))
            .where('page_calls.answer', 'is', null),
        )
        .returning(sql<number>`1`.as('stored'))
        .executeTakeFirst();
      return stored !== undefined;
    });
  }

  async findCall({ owner, sessionId }: SessionKey, callId: string): Promise<StoredCall> {
    const row = await this.context.database.tables
      .selectFrom('page_calls')
      .select(['answer', 'delivered_by'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('call_id', '=', callId)
      .executeTakeFirst();
    const { answer, delivered_by: deliveredBy } = row ?? {};
    return {
      isStored: row !== undefined,
      isDelivered: Boolean(answer ?? deliveredBy),
      answer: answer ? JSON.parse(answer) : undefined,
    };
  }

  private toRow({ owner, sessionId, sockets }: SocketCount) {
    return { owner, session_id: sessionId, host_id: this.hostId, sockets };
  }

  private toCallRow({ owner, sessionId }: SessionKey, callId: string) {
    return { owner, session_id: sessionId, call_id: callId };
  }
}
