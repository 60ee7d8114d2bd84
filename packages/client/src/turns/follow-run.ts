import type { ReplyPart } from '@sibyl/protocol';
import { OracleClientError } from '../oracle-client-error.js';
import { Connection } from './connection.js';
import { type NumberedPart, readFrames } from './read-frames.js';
import { Retries } from './retries.js';
import type { StreamOptions, StreamState } from './stream-options.js';

/** How far a run has been read. */
export interface Position {
  /** Undefined until the first frame of a new run has named it. */
  readonly runId: string | undefined;
  /** The number of the last frame seen. */
  readonly after: number;
}

/** Opens a run's stream after a position. */
export type OpenStream = (position: Position, signal: AbortSignal) => Promise<Response>;

/** Reads a run up to `done`, opening it again after every drop (contract B4). */
export async function* followRun(
  open: OpenStream,
  start: Position,
  options: StreamOptions = {},
): AsyncGenerator<ReplyPart, void> {
  const retries = new Retries(options);
  const tell = tellChanges(options.onState);
  let position = start;
  // A run that is joined has begun, whatever happens to the first attempt.
  if (start.runId) retries.succeeded();
  const attempt = async function* (connection: Connection) {
    const response = await open(position, connection.signal);
    tell('live');
    for await (const { seq, part } of framesOf(response, connection)) {
      position = { runId: runIdOf(part) ?? position.runId, after: seq };
      retries.succeeded();
      yield part;
      if (part.event === 'done') return;
    }
    throw new OracleClientError('network_error', 'The stream ended before the turn did');
  };
  for (;;) {
    const connection = new Connection(options.signal);
    try {
      return yield* attempt(connection);
    } catch (error) {
      tell('rejoining');
      await retries.afterFailure(error);
    } finally {
      connection.end();
    }
  }
}

async function* framesOf(
  { body }: Response,
  connection: Connection,
): AsyncGenerator<NumberedPart, void> {
  if (!body) return;
  try {
    yield* readFrames(body, () => connection.heard());
  } catch (cause) {
    if (cause instanceof OracleClientError) throw cause;
    throw new OracleClientError('network_error', 'The stream broke', { cause });
  }
}

const runIdOf = ({ event, data }: ReplyPart): string | undefined =>
  event === 'run' ? data.runId : undefined;

/** Tells a state only when it is another than before. */
function tellChanges(onState: StreamOptions['onState']): (state: StreamState) => void {
  let told: StreamState | undefined;
  return (state) => {
    if (state === told) return;
    told = state;
    onState?.(state);
  };
}
