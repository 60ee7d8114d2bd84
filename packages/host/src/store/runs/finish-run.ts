import type { Kysely } from 'kysely';
import { prepareQuery, type RunRow, type Schema, type StoreContext } from '../database.js';
import { releaseKeyOfRun } from '../idempotency-store.js';
import type { Message, MessageBody } from '../message.js';
import { insertMessage } from '../message-store.js';
import { type Frame, findLastSeq, insertFrames, type RunKey } from './frames.js';
import {
  type ENDED,
  LIVE,
  type Run,
  type RunError,
  type RunReport,
  type TokenUsage,
  toRun,
} from './run.js';

/** How a run ends. */
export interface RunEnding {
  readonly status: (typeof ENDED)[number];
  /** The answer, perhaps partial. */
  readonly message?:
    | (Pick<MessageBody, 'content' | 'parts' | 'metadata' | 'isComplete' | 'error'> & {
        readonly id?: string | undefined;
      })
    | undefined;
  /** The last frames of the log. */
  readonly frames?: readonly Frame[] | undefined;
  readonly usage?: TokenUsage | undefined;
  readonly fault?: RunError | undefined;
  readonly report?: RunReport | undefined;
}

export interface EndedRun {
  readonly run: Run;
  readonly message?: Message;
}

/** Ends a run inside a unit of work; undefined if the owner has no such run or it has ended already. */
export async function finishRun(
  tables: Kysely<Schema>,
  { ending, owner, runId }: RunKey & { readonly ending: RunEnding },
  { clock, newId }: StoreContext,
): Promise<EndedRun | undefined> {
  const now = clock();
  const key = { owner, runId };
  const message = ending.message && { ...ending.message, id: ending.message.id ?? newId() };
  const added = message ? { messages: 1, addedAt: now } : { messages: 0, addedAt: null };
  const [session] = (await lockSession(tables, { ...key, ...added })).rows;
  if (session === undefined) return undefined;
  const values = toEndingValues(ending, { now, messageId: message?.id ?? null });
  const [run] = (await endRun(tables, { ...key, ...values })).rows;
  if (run === undefined) return undefined;
  const answer =
    message &&
    (await insertMessage(tables, {
      ...message,
      ...toAnswer(run),
      seq: session.last_seq,
      createdAt: now,
    }));
  await insertFrames(tables, key, ending.frames ?? []);
  if (isHostFailure(ending)) await releaseKeyOfRun(tables, key);
  return { run: toRun(run), ...(answer && { message: answer }) };
}

/** Errors of the host itself, after which the client should send the message again. */
const HOST_ERRORS: readonly string[] = ['host_stopping', 'store_unavailable'];

/** Whether an error of the host is the only reason why there is no answer. Then a retry with the same key must not get the same error. */
function isHostFailure({ status, message, report }: RunEnding): boolean {
  const code = report?.error?.code;
  if (status === 'finished' || code === undefined || message?.content) return false;
  return HOST_ERRORS.includes(code);
}

interface NewMessages {
  /** 1 with an answer, otherwise 0. */
  readonly messages: number;
  readonly addedAt: number | null;
}

/** Locks the session before the run, in the same order as deleting a session. */
const lockSession = prepareQuery(
  (tables, { owner, runId, messages, addedAt }: RunKey & NewMessages) =>
    tables
      .updateTable('sessions')
      .set((e) => ({
        last_seq: e('last_seq', '+', messages),
        last_updated_at: e.fn.coalesce(e.val(addedAt), 'last_updated_at'),
      }))
      .where('owner', '=', owner)
      .where('id', '=', (e) =>
        e
          .selectFrom('runs')
          .select('session_id')
          .where('id', '=', runId)
          .where('owner', '=', owner)
          .where('status', 'in', LIVE),
      )
      .returning('last_seq'),
);

type EndingValues = Pick<
  RunRow,
  | 'status'
  | 'updated_at'
  | 'message_id'
  | 'error_kind'
  | 'error_message'
  | 'input_tokens'
  | 'output_tokens'
  | 'cached_tokens'
  | 'report'
> & { readonly last_seq: number | null };

const endRun = prepareQuery(
  (tables, { owner, runId, last_seq, ...values }: RunKey & EndingValues) =>
    tables
      .updateTable('runs')
      .set((e) => ({ ...values, last_seq: e.fn.coalesce(e.val(last_seq), 'last_seq') }))
      .where('id', '=', runId)
      .where('owner', '=', owner)
      // Checked again under the lock: another process may have ended the run.
      .where('status', 'in', LIVE)
      .returningAll(),
);

function toEndingValues(
  { status, usage, fault, report, frames = [] }: RunEnding,
  { now, messageId }: { now: number; messageId: string | null },
): EndingValues {
  return {
    status,
    updated_at: now,
    message_id: messageId,
    error_kind: fault?.kind ?? null,
    error_message: fault?.message ?? null,
    input_tokens: usage?.input ?? 0,
    output_tokens: usage?.output ?? 0,
    cached_tokens: usage?.cached ?? 0,
    report: report ? JSON.stringify(report) : null,
    last_seq: findLastSeq(frames),
  };
}

function toAnswer(run: RunRow) {
  return {
    type: 'ai',
    owner: run.owner,
    sessionId: run.session_id,
    requestId: run.request_id,
    runId: run.id,
    turn: run.turn,
  } as const;
}
