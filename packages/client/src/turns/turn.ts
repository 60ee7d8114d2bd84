import type {
  ActionCallEvent,
  ApprovalRequestEvent,
  BrowserToolCallEvent,
  Citation,
  DoneFrame,
  ErrorFrame,
  JsonObject,
  RenderComponentEvent,
  ReplyPart,
  RouterUpdateEvent,
  RunFrame,
  ToolCallEvent,
  WarningFrame,
} from '@sibyl/protocol';

/** A call of a tool, browser tool or action, and its current state. */
export interface Call {
  readonly id: string;
  readonly kind: 'tool' | 'browser-tool' | 'action';
  readonly name: string;
  readonly args: JsonObject;
  readonly status: 'running' | 'done' | 'error';
  /** JSON text of the result. */
  readonly output?: string;
  readonly error?: string;
}

/** A piece of an answer. */
export type AnswerPart =
  | { readonly type: 'text' | 'reasoning'; readonly text: string }
  | { readonly type: 'call'; readonly call: Call }
  | { readonly type: 'component'; readonly component: RenderComponentEvent }
  | { readonly type: 'approval'; readonly approval: ApprovalRequestEvent }
  | { readonly type: 'citation'; readonly citation: Citation };

/** The accumulated parts of a stream. */
export interface Turn {
  readonly runId?: string;
  readonly requestId?: string;
  /** `waiting` until the second frame: the turn may be queued. */
  readonly status: 'waiting' | 'running' | DoneFrame['status'];
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly Call[];
  readonly components: readonly RenderComponentEvent[];
  readonly steps: readonly RouterUpdateEvent[];
  /** Calls that wait for the user's approval. */
  readonly approvals: readonly ApprovalRequestEvent[];
  /** The sources of the answer. */
  readonly citations: readonly Citation[];
  readonly warnings: readonly WarningFrame[];
  /** Text, reasoning, calls, components, approvals and citations in the order in which they began. */
  readonly parts: readonly AnswerPart[];
  readonly error?: ErrorFrame;
  /** The stored message, once it exists. */
  readonly messageId?: string;
}

/** A turn without any parts. */
export const emptyTurn: Turn = {
  status: 'waiting',
  text: '',
  reasoning: '',
  calls: [],
  components: [],
  steps: [],
  approvals: [],
  citations: [],
  warnings: [],
  parts: [],
};

/** Adds a part to a turn. Text that the server lost in a crash is removed again. */
export function addPart(turn: Turn, part: ReplyPart): Turn {
  if (part.event === 'run') return startTurn(turn, part.data);
  if (part.event === 'done') return endTurn(turn, part.data);
  const changed = { ...turn, ...applyPart(turn, part) };
  return { ...changed, status: 'running', parts: appendPart(changed, part) };
}

function startTurn(turn: Turn, { runId, requestId, resumed, partialLength = 0 }: RunFrame): Turn {
  // Another attempt of a turn repeats nothing if it is `resumed`, and everything if it is not.
  const isSame = resumed || !turn.runId || turn.runId === runId;
  const before = isSame ? turn : emptyTurn;
  const text = resumed ? before.text.slice(0, partialLength) : before.text;
  return { ...before, runId, requestId, text, parts: fitText(before.parts, text) };
}

function endTurn(turn: Turn, { status, messageId, partialText = turn.text }: DoneFrame): Turn {
  const parts = fitText(turn.parts, partialText);
  return { ...turn, status, text: partialText, parts, ...(messageId && { messageId }) };
}

/** Truncates or extends the text of parts, so that together they are exactly this text. */
export function fitText(parts: readonly AnswerPart[], text: string): readonly AnswerPart[] {
  let rest = text;
  const fitted = parts.flatMap((part) => {
    if (part.type !== 'text') return part;
    const { length } = part.text;
    const kept = { ...part, text: rest.slice(0, length) };
    rest = rest.slice(length);
    return kept.text ? kept : [];
  });
  return rest ? [...fitted, { type: 'text', text: rest }] : fitted;
}

/** Adds a part, or changes the one it belongs to. */
function appendPart(turn: Turn, { event, data }: ReplyPart): readonly AnswerPart[] {
  const { parts, calls, components } = turn;
  switch (event) {
    case 'message':
      return appendText(parts, 'text', data.content);
    case 'reasoning':
      return appendText(parts, 'reasoning', data.reasoning);
    case 'tool_call':
    case 'browser_tool_call':
    case 'action_call': {
      const id = 'eventId' in data ? data.eventId : data.toolCallId;
      const call = calls.find((each) => each.id === id);
      return call ? upsertPart(parts, { type: 'call', call }) : parts;
    }
    case 'render_component': {
      const component = components.find(({ eventId }) => eventId === data.eventId);
      return component ? upsertPart(parts, { type: 'component', component }) : parts;
    }
    case 'approval_request':
      return [...parts, { type: 'approval', approval: data }];
    case 'citation':
      return [...parts, { type: 'citation', citation: data.citation }];
    default:
      return parts;
  }
}

function appendText(
  parts: readonly AnswerPart[],
  type: 'text' | 'reasoning',
  text: string,
): readonly AnswerPart[] {
  if (!text) return parts;
  const last = parts.at(-1);
  if (last?.type !== type) return [...parts, { type, text }];
  return [...parts.slice(0, -1), { type, text: last.text + text }];
}

function upsertPart(parts: readonly AnswerPart[], part: AnswerPart): readonly AnswerPart[] {
  const key = getPartKey(part);
  const isKnown = parts.some((each) => getPartKey(each) === key);
  return isKnown ? parts.map((each) => (getPartKey(each) === key ? part : each)) : [...parts, part];
}

function getPartKey(part: AnswerPart): string | undefined {
  if (part.type === 'call') return `call ${part.call.id}`;
  return part.type === 'component' ? `component ${part.component.eventId}` : undefined;
}

function applyPart(turn: Turn, part: Exclude<ReplyPart, { event: 'run' | 'done' }>): Partial<Turn> {
  switch (part.event) {
    case 'message':
      return { text: turn.text + part.data.content };
    case 'reasoning':
      return { reasoning: turn.reasoning + part.data.reasoning };
    case 'tool_call':
      return { calls: upsertCall(turn.calls, toCall('tool', part.data.eventId, part.data)) };
    case 'browser_tool_call':
      return {
        calls: upsertCall(turn.calls, toCall('browser-tool', part.data.toolCallId, part.data)),
      };
    case 'action_call':
      return { calls: upsertCall(turn.calls, toCall('action', part.data.toolCallId, part.data)) };
    case 'render_component':
      return { components: upsertComponent(turn.components, part.data) };
    case 'router_update':
      return { steps: [...turn.steps, part.data] };
    case 'approval_request':
      return { approvals: [...turn.approvals, part.data] };
    case 'citation':
      return { citations: [...turn.citations, part.data.citation] };
    case 'warning':
      return { warnings: [...turn.warnings, part.data] };
    case 'error':
      return { error: part.data };
    case 'message_cache_invalidation':
      return {};
    default:
      // A newer server may send other parts.
      part satisfies never;
      return {};
  }
}

type CallEvent = Pick<ToolCallEvent, 'toolName' | 'args'> &
  Partial<Pick<ToolCallEvent | ActionCallEvent, 'status' | 'output' | 'error'>>;

function toCall(
  kind: Call['kind'],
  id: string,
  {
    toolName: name,
    args,
    status = 'isRunning',
    output,
    error,
  }: CallEvent | (BrowserToolCallEvent & CallEvent),
): Call {
  return {
    id,
    kind,
    name,
    args,
    status: status === 'isRunning' ? 'running' : status,
    ...(output !== undefined && { output }),
    ...(error !== undefined && { error }),
  };
}

/** A call may arrive as the model's and as the page's: both are one call, of the page's kind. */
function upsertCall(calls: readonly Call[], call: Call): readonly Call[] {
  const known = calls.find(({ id }) => id === call.id);
  if (!known) return [...calls, call];
  const kind = call.kind === 'tool' ? known.kind : call.kind;
  return calls.map((each) => (each === known ? { ...known, ...call, kind } : each));
}

function upsertComponent(
  components: readonly RenderComponentEvent[],
  component: RenderComponentEvent,
): readonly RenderComponentEvent[] {
  const isKnown = components.some(({ eventId }) => eventId === component.eventId);
  if (!isKnown) return [...components, component];
  return components.map((each) => (each.eventId === component.eventId ? component : each));
}
