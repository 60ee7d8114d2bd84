import { randomUUID } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';

export interface ChatMessage {
  readonly role: string;
  readonly content: string | null;
  readonly tool_calls?: readonly object[];
  readonly tool_call_id?: string;
}

/** The rows of a turn, in two commits: one before the model call and one after. */
export interface FloorRows {
  /** Stores the user's message and the run. */
  begin(sessionId: string, text: string): string;
  history(sessionId: string): ChatMessage[];
  /** Stores the answer and the end of its run. */
  end(sessionId: string, runId: string, text: string): string;
}

const SCHEMA = `
  create table messages (
    id text primary key, session_id text not null, role text not null, content text not null, created_at integer not null
  );
  create index messages_by_session on messages (session_id, created_at);
  create table runs (
    id text primary key, session_id text not null, status text not null, started_at integer not null, ended_at integer
  );
`;

/** The least that remembers a conversation. */
export function openFloorRows(path: string): FloorRows {
  const db = openDatabase(path, SCHEMA);
  const message = db.prepare('insert into messages values (?, ?, ?, ?, ?)');
  const run = db.prepare("insert into runs values (?, ?, 'running', ?, null)");
  const ended = db.prepare("update runs set status = 'finished', ended_at = ? where id = ?");
  const history = db.prepare(
    'select role, content from messages where session_id = ? order by created_at, rowid',
  );
  return {
    begin(sessionId, text) {
      const runId = randomUUID();
      const now = Date.now();
      commit(db, () => {
        message.run(randomUUID(), sessionId, 'user', text, now);
        run.run(runId, sessionId, now);
      });
      return runId;
    },
    history: (sessionId) => history.all(sessionId) as unknown as ChatMessage[],
    end(sessionId, runId, text) {
      const id = randomUUID();
      const now = Date.now();
      commit(db, () => {
        message.run(id, sessionId, 'assistant', text, now);
        ended.run(now, runId);
      });
      return id;
    },
  };
}

const OWNER = 'did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK';

/**
 * What a durable turn stores at least, in the host's own tables: numbered messages, one open run per session, the events of its
 * stream, the order of sessions, and what is to be indexed for search (by triggers). Without what a turn reads about the
 * user: revocations, rules, delegations, memory, files.
 */
export function openDurableRows(path: string, hostDatabase: string): FloorRows {
  const db = openDatabase(path, readSchema(hostDatabase));
  const statements = prepareDurable(db);
  const { session, open, next, message, run, history, finish, frames } = statements;
  const store = (sessionId: string, runId: string, row: { type: string; text: string }) => {
    const now = Date.now();
    const turns = row.type === 'human' ? 1 : 0;
    const id = randomUUID();
    const { seq, turn } = next.get(turns, now, id, OWNER, sessionId) as {
      seq: number;
      turn: number;
    };
    message.run(OWNER, id, sessionId, turn, seq, row.type, row.text, runId, runId, now);
    return { id, turn, now };
  };
  return {
    begin(sessionId, text) {
      const runId = randomUUID();
      commit(db, () => {
        session.run(OWNER, sessionId, Date.now(), Date.now());
        if (open.get(OWNER, sessionId)) throw new Error('another turn of the session runs');
        const { turn, now } = store(sessionId, runId, { type: 'human', text });
        run.run(OWNER, runId, sessionId, turn, runId, now, now, now);
      });
      return runId;
    },
    history: (sessionId) => history.all(OWNER, sessionId) as unknown as ChatMessage[],
    end(sessionId, runId, text) {
      return commit(db, () => {
        const { id, now } = store(sessionId, runId, { type: 'ai', text });
        finish.run(now, id, OWNER, runId);
        frames.run(OWNER, runId, JSON.stringify({ type: 'text', text }));
        return id;
      });
    },
  };
}

function prepareDurable(db: DatabaseSync) {
  return {
    session: db.prepare(`insert into sessions
      (owner, id, title, created_at, last_updated_at, oracle_did, room_id, last_seq, last_turn, active_branch, last_branch)
      values (?, ?, 'Bench', ?, ?, '', '', 0, 0, 0, 0) on conflict do nothing`),
    open: db.prepare(`select id from runs
      where owner = ? and session_id = ? and status in ('queued', 'running', 'paused')`),
    next: db.prepare(`update sessions set last_seq = last_seq + 1, last_turn = last_turn + ?, last_updated_at = ?,
      previous_message_id = active_message_id, active_message_id = ? where owner = ? and id = ?
      returning last_seq as seq, last_turn as turn`),
    message: db.prepare(`insert into messages
      (owner, id, session_id, turn, seq, branch, type, content, request_id, run_id, is_complete, created_at)
      values (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 1, ?)`),
    run: db.prepare(`insert into runs
      (owner, id, session_id, turn, request_id, status, attempt, branch, host_id, last_seq, input_tokens, output_tokens, cached_tokens,
      started_at, updated_at, created_at)
      values (?, ?, ?, ?, ?, 'running', 1, 0, 'floor', 0, 0, 0, 0, ?, ?, ?)`),
    history:
      db.prepare(`select case type when 'ai' then 'assistant' else 'user' end as role, content from messages
      where owner = ? and session_id = ? and branch = 0 order by turn, seq`),
    finish:
      db.prepare(`update runs set status = 'completed', updated_at = ?, message_id = ?, input_tokens = 100,
      output_tokens = 20, last_seq = 20, host_id = null
      where owner = ? and id = ? and status = 'running' returning id`),
    frames: db.prepare('insert into frames (owner, run_id, seq, lines) values (?, ?, 1, ?)'),
  };
}

/** The tables of conversations with their indexes and triggers. */
function readSchema(hostDatabase: string): string {
  const host = new DatabaseSync(hostDatabase, { readOnly: true });
  const rows = host
    .prepare(`select sql from sqlite_master where sql is not null
      and tbl_name in ('sessions', 'messages', 'runs', 'frames', 'search_queue')
      order by type = 'table' desc, tbl_name = 'sessions' desc, tbl_name = 'runs' desc`)
    .all();
  host.close();
  return rows.map(({ sql }) => `${sql};`).join('\n');
}

function openDatabase(path: string, schema: string): DatabaseSync {
  const db = new DatabaseSync(path);
  db.exec('pragma journal_mode = wal; pragma synchronous = full;');
  db.exec(schema);
  return db;
}

function commit<T>(db: DatabaseSync, write: () => T): T {
  db.exec('begin immediate');
  const result = write();
  db.exec('commit');
  return result;
}
