import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

export interface ChatMessage {
  readonly role: string;
  readonly content: string | null;
  readonly tool_calls?: readonly object[];
  readonly tool_call_id?: string;
}

const SCHEMA = `
  pragma journal_mode = wal;
  pragma synchronous = full;
  create table messages (
    id text primary key, session_id text not null, role text not null, content text not null, created_at integer not null
  );
  create index messages_by_session on messages (session_id, created_at);
  create table runs (
    id text primary key, session_id text not null, status text not null, started_at integer not null, ended_at integer
  );
`;

/** The rows of a turn by hand: two commits, one before the model is asked and one after. */
export function openFloorRows(dataDir: string) {
  const db = new DatabaseSync(join(dataDir, `floor-${process.pid}.db`));
  db.exec(SCHEMA);
  const message = db.prepare('insert into messages values (?, ?, ?, ?, ?)');
  const run = db.prepare("insert into runs values (?, ?, 'running', ?, null)");
  const ended = db.prepare("update runs set status = 'finished', ended_at = ? where id = ?");
  const history = db.prepare(
    'select role, content from messages where session_id = ? order by created_at, rowid',
  );
  return {
    /** Stores what the user said and the run that answers it. */
    begin(sessionId: string, text: string): string {
      const runId = randomUUID();
      const now = Date.now();
      db.exec('begin immediate');
      message.run(randomUUID(), sessionId, 'user', text, now);
      run.run(runId, sessionId, now);
      db.exec('commit');
      return runId;
    },
    history: (sessionId: string) => history.all(sessionId) as unknown as ChatMessage[],
    /** Stores the answer and the end of its run. */
    end(sessionId: string, runId: string, text: string): string {
      const id = randomUUID();
      const now = Date.now();
      db.exec('begin immediate');
      message.run(id, sessionId, 'assistant', text, now);
      ended.run(now, runId);
      db.exec('commit');
      return id;
    },
  };
}
