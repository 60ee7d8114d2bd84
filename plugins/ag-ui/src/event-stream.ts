import { type AGUIEvent, EventType } from '@ag-ui/core';
import { findClientToolCall } from '@sibyl/plugin-kit/surface';
import { listAsked, type NumberedEvent, type RunView } from './events.js';

/** What a client must not receive. */
export interface Reader {
  /** The number of the last event that it has. */
  readonly after?: number;
  /** Calls that it has; it must not receive them twice. */
  readonly known?: KnownCalls;
  /** The tools of a client that runs each of their calls that has no result, as those before 1.0 do. */
  readonly tools?: ReadonlySet<string> | undefined;
}

export interface KnownCalls {
  readonly started: ReadonlySet<string>;
  readonly answered: ReadonlySet<string>;
}

type AskingRun = Pick<RunView, 'turns' | 'run'>;

/** The events for a client, as server-sent events. */
export async function* streamEvents(
  events: AsyncIterable<NumberedEvent>,
  run: AskingRun,
  { tools, ...reader }: Reader,
): AsyncGenerator<string> {
  const missing = leaveOutKnown(events, reader);
  for await (const { number, event } of tools ? holdCalls(missing, run, tools) : missing)
    yield `id: ${number}\ndata: ${JSON.stringify(event)}\n\n`;
}

async function* leaveOutKnown(
  events: AsyncIterable<NumberedEvent>,
  { after = 0, known }: Omit<Reader, 'tools'>,
): AsyncGenerator<NumberedEvent> {
  for await (const each of events)
    if (each.number > after && !(known && isKnown(each.event, known))) yield each;
}

function isKnown(event: AGUIEvent, { started, answered }: KnownCalls): boolean {
  if (event.type === EventType.TOOL_CALL_RESULT) return answered.has(event.toolCallId);
  const callId = findStarted(event);
  return callId !== undefined && started.has(callId);
}

/** The id of the call that an event starts. */
function findStarted(event: AGUIEvent): string | undefined {
  switch (event.type) {
    case EventType.TOOL_CALL_START:
    case EventType.TOOL_CALL_ARGS:
    case EventType.TOOL_CALL_END:
      return event.toolCallId;
    default:
      return undefined;
  }
}

/** Holds a call of the client's tools, and what follows, until it is known whether the client has to run it; a call that needs an approval is left out. */
async function* holdCalls(
  events: AsyncIterable<NumberedEvent>,
  run: AskingRun,
  tools: ReadonlySet<string>,
): AsyncGenerator<NumberedEvent> {
  const undecided = new Set<string>();
  const held: NumberedEvent[] = [];
  for await (const each of events) {
    const { event } = each;
    held.push(each);
    if (event.type === EventType.TOOL_CALL_START && tools.has(event.toolCallName))
      undecided.add(event.toolCallId);
    if (event.type === EventType.TOOL_CALL_RESULT) undecided.delete(event.toolCallId);
    if (undecided.size === 0) yield* held.splice(0);
    else if (isEnd(event)) yield* leaveOut(held, await listRefused(run, undecided));
  }
}

const isEnd = ({ type }: AGUIEvent) =>
  type === EventType.RUN_FINISHED || type === EventType.RUN_ERROR;

const leaveOut = (events: readonly NumberedEvent[], calls: ReadonlySet<string>) =>
  events.filter(({ event }) => !calls.has(findStarted(event) ?? ''));

/** Those of the calls that the client of a run must not run. */
async function listRefused(
  run: AskingRun,
  calls: ReadonlySet<string>,
): Promise<ReadonlySet<string>> {
  const asked = (await listAsked(run)).map((each) => findClientToolCall(each)?.toolCallId);
  return new Set([...calls].filter((id) => !asked.includes(id)));
}
