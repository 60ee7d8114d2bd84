import type { SurfaceRun } from '@sibyl/plugin-kit/surface';
import { CALL_PREFIX, type FunctionCall, type RunEvent } from './turn.js';

const MESSAGE_PREFIX = 'msg_';
const REASONING_PREFIX = 'rs_';
const ITEM_PREFIX = 'fc_';

export interface ResponseEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** What the model writes. */
type Delta = Extract<RunEvent, { readonly text: string }>;

/** The message, or reasoning without a break. */
interface SaidItem {
  readonly type: Delta['type'];
  readonly index: number;
  text: string;
}

/** What a run has said, in the order in which its items begin: all text is one message. */
export class Said {
  readonly items: SaidItem[] = [];
  /** The item that was added to last. */
  last: SaidItem | undefined;

  add({ type, text }: Delta): SaidItem {
    const known = type === 'text' ? this.message : this.openReasoning;
    const item = known ?? { type, index: this.items.length, text: '' };
    if (!known) this.items.push(item);
    item.text += text;
    this.last = item;
    return item;
  }

  /** Replaces the text of the message. */
  correct(text: string): void {
    if (this.message) this.message.text = text;
  }

  /** Those that more could be added to. */
  get open(): SaidItem[] {
    return this.items.filter((item) => item === this.message || item === this.openReasoning);
  }

  private get message(): SaidItem | undefined {
    return this.items.find(({ type }) => type === 'text');
  }

  private get openReasoning(): SaidItem | undefined {
    return this.last?.type === 'reasoning' ? this.last : undefined;
  }
}

export const toSaidItem = (run: SurfaceRun, item: SaidItem, status: string) =>
  item.type === 'text' ? toMessageItem(run, item.text, status) : toReasoningItem(run, item, status);

// Attempts of one turn share the id of the message.
export const toMessageId = ({ messageId, runId }: Pick<SurfaceRun, 'messageId' | 'runId'>) =>
  `${MESSAGE_PREFIX}${messageId}_${runId}`;

const toMessageItem = (run: SurfaceRun, text: string, status: string) => ({
  type: 'message',
  id: toMessageId(run),
  status,
  role: 'assistant',
  content: status === 'completed' ? [toPart(text)] : [],
});

const toReasoningItem = ({ runId }: SurfaceRun, { index, text }: SaidItem, status: string) => ({
  type: 'reasoning',
  id: `${REASONING_PREFIX}${index}_${runId}`,
  summary: status === 'completed' ? [toSummary(text)] : [],
  status,
});

export const isReasoningId = (itemId: string) => itemId.startsWith(REASONING_PREFIX);

const toPart = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] });
const toSummary = (text: string) => ({ type: 'summary_text', text });

/** How the events of each type differ. */
const FORMS = {
  text: {
    text: 'response.output_text',
    part: 'response.content_part',
    toPart,
    place: { content_index: 0 },
    more: { logprobs: [] },
  },
  reasoning: {
    text: 'response.reasoning_summary_text',
    part: 'response.reasoning_summary_part',
    toPart: toSummary,
    place: { summary_index: 0 },
    more: {},
  },
};

export const toCallId = ({ runId }: Pick<SurfaceRun, 'runId'>, callId: string) =>
  `${callId.replace(CALL_PREFIX, ITEM_PREFIX)}_${runId}`;

export const toCallItem = (
  run: SurfaceRun,
  { id, name, arguments: args }: FunctionCall,
  status: string,
) => ({
  type: 'function_call',
  id: toCallId(run, id),
  call_id: id,
  name,
  arguments: status === 'completed' ? args : '',
  status,
});

/** The events of what the model writes; reasoning ends when something else follows. */
export function* sendDelta(run: SurfaceRun, said: Said, delta: Delta): Generator<ResponseEvent> {
  const { last, items } = said;
  const count = items.length;
  const item = said.add(delta);
  if (last?.type === 'reasoning' && last !== item) yield* closeItem(run, last);
  if (items.length > count) yield* openItem(run, item);
  const { text, more } = FORMS[item.type];
  yield { type: `${text}.delta`, ...toPlace(run, item), delta: delta.text, ...more };
}

const toPlace = (run: SurfaceRun, item: SaidItem) => ({
  item_id: toSaidItem(run, item, 'in_progress').id,
  output_index: item.index,
  ...FORMS[item.type].place,
});

function* openItem(run: SurfaceRun, item: SaidItem): Generator<ResponseEvent> {
  const { part, toPart } = FORMS[item.type];
  const added = toSaidItem(run, item, 'in_progress');
  yield { type: 'response.output_item.added', output_index: item.index, item: added };
  yield { type: `${part}.added`, ...toPlace(run, item), part: toPart('') };
}

export function* closeItem(run: SurfaceRun, item: SaidItem): Generator<ResponseEvent> {
  const { text, part, toPart, more } = FORMS[item.type];
  const place = toPlace(run, item);
  yield { type: `${text}.done`, ...place, text: item.text, ...more };
  yield { type: `${part}.done`, ...place, part: toPart(item.text) };
  const done = toSaidItem(run, item, 'completed');
  yield { type: 'response.output_item.done', output_index: item.index, item: done };
}

export function* sendCall(
  run: SurfaceRun,
  call: FunctionCall,
  output_index: number,
): Generator<ResponseEvent> {
  const added = toCallItem(run, call, 'in_progress');
  const place = { item_id: added.id, output_index };
  const { name, arguments: args } = call;
  yield { type: 'response.output_item.added', output_index, item: added };
  yield { type: 'response.function_call_arguments.delta', ...place, delta: args };
  yield { type: 'response.function_call_arguments.done', ...place, name, arguments: args };
  const item = toCallItem(run, call, 'completed');
  yield { type: 'response.output_item.done', output_index, item };
}
