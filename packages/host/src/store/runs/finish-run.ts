import type { Kysely } from 'kysely';
import type { RunRow, Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import { appendMessage } from '../messages/append-message.js';
import type { Message, MessageBody } from '../messages/message.js';
import { type Frame, insertFrames, lastSeqOf, type RunKey } from './frames.js';
import { type ENDED, LIVE, type Run, type RunFault, type TokenUsage, toRun } from './run.js';

/** How a run ends. */
export interface RunEnding {
  readonly status: (typeof ENDED)[number];
  /** The answer, as far as it came. */
  readonly message?:
    | (Pick<MessageBody, 'content' | 'toolCalls' | 'reasoning' | 'metadata' | 'isComplete'> & {
        readonly id?: string | undefined;
      })
    | undefined;
  /** The last frames of the log. */
  readonly frames?: readonly Frame[] | undefined;
  readonly usage?: TokenUsage | undefined;
  readonly fault?: RunFault | undefined;
}

export interface EndedRun {
  readonly run: Run;
  readonly message?: Message;
}

/** Ends a run inside a unit; undefined if the owner has no such run or it has ended already. */
export async function finishRun(
  tables: Kysely<Schema>,
  { ending, ...key }: RunKey & { readonly ending: RunEnding },
  context: StoreContext,
): Promise<EndedRun | undefined> {
  const live = await findLive(tables, key);
  if (live === undefined) return undefined;
  await lockSession(tables, live);
  const messageId = ending.message && (ending.message.id ?? context.newId());
  const row = await tables
    .updateTable('runs')
    .set(endingValues(ending, { now: context.clock(), messageId }))
    .where('id', '=', key.runId)
    .where('owner', '=', key.owner)
    // Asked again under the lock: of two that end a run at once, the second finds it ended.
    .where('status', 'in', LIVE)
    .returningAll()
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const message = await appendAnswer(tables, { run: row, ending }, context);
  await insertFrames(tables, key, ending.frames ?? []);
  return { run: toRun(row), ...(message && { message }) };
}

function findLive(tables: Kysely<Schema>, key: RunKey): Promise<RunRow | undefined> {
  return tables
    .selectFrom('runs')
    .selectAll()
    .where('id', '=', key.runId)
    .where('owner', '=', key.owner)
    .where('status', 'in', LIVE)
    .executeTakeFirst();
}

/** Deleting a session locks it before its runs; whoever ends a run must do the same. */
async function lockSession(tables: Kysely<Schema>, run: RunRow): Promise<void> {
  await tables
    .updateTable('sessions')
    .set((e) => ({ last_seq: e.ref('last_seq') }))
    .where('id', '=', run.session_id)
    .where('owner', '=', run.owner)
    .execute();
}

async function appendAnswer(
  tables: Kysely<Schema>,
  { run, ending }: { run: RunRow; ending: RunEnding },
  context: StoreContext,
): Promise<Message | undefined> {
  if (ending.message === undefined || run.message_id === null) return undefined;
  const answer = {
    ...ending.message,
    id: run.message_id,
    type: 'ai',
    owner: run.owner,
    sessionId: run.session_id,
    requestId: run.request_id,
    runId: run.id,
    turn: run.turn,
  } as const;
  return appendMessage(tables, answer, context);
}

function endingValues(
  { status, usage, fault, frames }: RunEnding,
  { now, messageId }: { now: number; messageId: string | undefined },
): Partial<RunRow> {
  return {
    status,
    updated_at: now,
    message_id: messageId ?? null,
    error_kind: fault?.kind ?? null,
    error_message: fault?.message ?? null,
    ...(usage && {
      input_tokens: usage.input,
      output_tokens: usage.output,
      cached_tokens: usage.cached,
    }),
    ...lastSeqOf(frames ?? []),
  };
}
