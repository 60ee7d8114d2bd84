import type {
  ModelCall,
  ModelMessage,
  ModelTool,
  ModelToolCall,
  ModelToolResult,
} from '../models/model.js';
import {
  type AgentPart,
  type AgentRequest,
  type AgentTool,
  type FinishedCall,
  type Warning,
  warning,
} from './agent.js';
import { type Compactor, createCompactor } from './context-budget.js';
import { Step, toWellFormed } from './conversation.js';
import { CallIds, RepetitionGuard, readCall, runCalls, type WantedCall } from './run-tools.js';
import { endWith, untilAborted } from './timeouts.js';

/**
 * Answers one message: asks the model, runs the tools it calls, and asks again until it answers.
 * Every `tool-start` is followed by its `tool-end`; an abort throws the signal's reason, a fault of
 * the model its ModelFault, a refusal of the meter or a hook its OracleError.
 */
export async function* runAgent(request: AgentRequest): AsyncGenerator<AgentPart> {
  const { model, signal } = request;
  const turn = new AgentTurn(request);
  for (;;) {
    const call = yield* turn.nextCall();
    signal.throwIfAborted();
    const step = turn.nextStep();
    try {
      // In this loop, not in a generator of its own: each one between costs every token.
      for await (const part of endWith(model.stream(call), signal)) {
        const shown = step.take(part);
        if (shown !== undefined) yield shown;
      }
    } finally {
      turn.count(call);
    }
    yield* step.warnings();
    await turn.endStep(call);
    if (turn.isOver) break;
    yield* turn.runTools(step);
  }
  if (!turn.hasSpoken) yield warning('no_answer', 'The model ended without an answer.');
}

/** Where a turn stands: what was said, what was done, what the model is asked next. */
class AgentTurn {
  private readonly history: readonly ModelMessage[];
  /** The message to answer and all steps so far. */
  private readonly current: ModelMessage[];
  private readonly compactor: Compactor;
  private readonly ids = new CallIds();
  private readonly guard = new RepetitionGuard();
  private tools: readonly AgentTool[] = [];
  /** All of `tools`. */
  private offer = NOTHING;
  /** What the latest call offered of it. */
  private offered = NOTHING;
  private step = new Step(undefined);
  private calls: readonly WantedCall[] = [];
  private isLastStep = false;

  constructor(private readonly request: AgentRequest) {
    const messages = toWellFormed(request.messages, this.ids);
    const asked = messages.findLastIndex(({ role }) => role === 'user');
    this.history = messages.slice(0, Math.max(0, asked));
    this.current = messages.slice(Math.max(0, asked));
    this.compactor = createCompactor(request);
  }

  /** Whether the step just made was the last: it asked for no tools, or may not use any more. */
  get isOver(): boolean {
    return this.isLastStep || this.step.calls.length === 0;
  }

  get hasSpoken(): boolean {
    return this.step.hasSpoken;
  }

  /** What the model is asked next, fitted into its context. */
  async *nextCall(): AsyncGenerator<AgentPart, ModelCall> {
    const limit = this.reachedLimit();
    this.isLastStep = limit !== undefined;
    if (limit !== undefined) yield limit;
    const { system, signal, hooks, meter } = this.request;
    const offer = this.isLastStep ? NOTHING : this.currentOffer();
    const { history, current } = this;
    const draft = { system, tools: offer.shown, history, current, signal };
    const { messages, warnings } = await this.compactor.fit(draft);
    yield* warnings;
    const fitted = { system, messages, tools: offer.shown, signal };
    await untilAborted(() => meter.check(), signal);
    const call = hooks ? await hooks.before(fitted) : fitted;
    this.offered = narrowed(offer, call.tools);
    return this.presentable(call);
  }

  /** Opens the step that collects the answer to the call. */
  nextStep(): Step {
    this.request.limits.steps.take();
    this.step = new Step(this.hasSpoken ? this.step : undefined);
    return this.step;
  }

  /** Takes what the call cost into account, however it ended. */
  count(call: ModelCall): void {
    const { meter, model } = this.request;
    meter.add(this.step.useOf(model.id, call));
  }

  /** Reads what the model wants done. */
  async endStep(call: ModelCall): Promise<void> {
    const { hooks, model } = this.request;
    const { step } = this;
    this.calls = step.calls.map((wanted) => readCall({ ...wanted, id: this.ids.take(wanted.id) }));
    if (!hooks) return;
    const toolCalls = this.calls.map(({ id, name }) => ({ id, name }));
    await hooks.after({ text: step.text, toolCalls, use: step.useOf(model.id, call) });
  }

  /** Runs what the step asked for and takes it into the conversation; an abort closes all calls first. */
  async *runTools(step: Step): AsyncGenerator<AgentPart> {
    const { signal } = this.request;
    const { calls, guard } = this;
    const opened: WantedCall[] = [];
    const tools = this.offered.byName;
    for (const call of calls) {
      if (signal.aborted) break;
      opened.push(call);
      const { id, name, args } = call;
      yield { type: 'tool-start', id, name, args, event: tools.get(name)?.event };
    }
    const finished = new Map<string, FinishedCall>();
    for await (const call of runCalls({ calls: opened, tools, guard, signal })) {
      finished.set(call.id, call);
      yield { type: 'tool-end', call, event: tools.get(call.name)?.event };
    }
    signal.throwIfAborted();
    const results = calls.flatMap(({ id }) => finished.get(id) ?? []).map(toModelResult);
    this.current.push(step.toMessage(calls), { role: 'tool', results });
  }

  private currentOffer(): Offer {
    if (!this.request.model.tools) return NOTHING;
    const tools = this.request.tools();
    if (tools !== this.tools) this.offer = offerOf(tools);
    this.tools = tools;
    return this.offer;
  }

  private presentable(call: ModelCall): ModelCall {
    const tools = this.offered.shown;
    const messages = tools.length > 0 ? call.messages : withoutTools(call.messages);
    return { ...call, tools, messages: this.isLastStep ? askForAnswer(messages) : messages };
  }

  private reachedLimit(): Warning | undefined {
    const { steps } = this.request.limits;
    if (this.guard.isTired) return warning('repetition', REPEATING);
    if (!steps.isSpent) return undefined;
    return warning('step_limit', `The agent was stopped after ${steps.limit} steps with tools.`);
  }
}

const REPEATING = 'The agent kept repeating the same tool call and was stopped.';

function toModelResult({ id, name, status, output }: FinishedCall): ModelToolResult {
  return { id, name, output, isError: status === 'error' };
}

/** The tools of one model call: as the model is told, and as its calls find them. */
interface Offer {
  readonly shown: readonly ModelTool[];
  readonly byName: ReadonlyMap<string, AgentTool>;
}

const NOTHING: Offer = { shown: [], byName: new Map() };

function offerOf(tools: readonly AgentTool[]): Offer {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return { shown: [...byName.values()].map(toModelTool), byName };
}

/** The offer as somebody else shows it to the model: with less in it or in other words, never with more. */
function narrowed(offer: Offer, shown: readonly ModelTool[]): Offer {
  if (shown === offer.shown) return offer;
  const byName = new Map<string, AgentTool>();
  for (const { name } of shown) {
    const tool = offer.byName.get(name);
    if (tool) byName.set(name, tool);
  }
  return { shown: shown.filter(({ name }) => byName.has(name)), byName };
}

function toModelTool({ name, description, inputSchema }: AgentTool): ModelTool {
  return { name, description, inputSchema };
}

const ASK =
  '(No more tools can be used in this turn. Answer now from what is known, and say plainly what is missing.)';

/** Ends a conversation with the wish for an answer instead of another tool call. */
function askForAnswer(messages: readonly ModelMessage[]): ModelMessage[] {
  const last = messages.at(-1);
  if (last?.role !== 'user') return [...messages, { role: 'user', content: ASK }];
  const { content } = last;
  const asked =
    typeof content === 'string'
      ? `${content}\n\n${ASK}`
      : [...content, { type: 'text' as const, text: ASK }];
  return [...messages.slice(0, -1), { role: 'user', content: asked }];
}

/**
 * Tells tool calls and their results in words. Some providers refuse a conversation that holds
 * calls when no tools are offered with it.
 */
function withoutTools(messages: readonly ModelMessage[]): ModelMessage[] {
  return messages.map(inWords);
}

function inWords(message: ModelMessage): ModelMessage {
  switch (message.role) {
    case 'user':
      return message;
    case 'assistant':
      if (!message.toolCalls?.length) return message;
      return {
        role: 'assistant',
        text: [message.text, ...message.toolCalls.map(callInWords)].filter(Boolean).join('\n'),
      };
    case 'tool':
      return { role: 'user', content: message.results.map(resultInWords).join('\n') };
    default:
      return message satisfies never;
  }
}

function callInWords({ name, input }: ModelToolCall): string {
  return `(I called the tool ${name} with ${input})`;
}

function resultInWords({ name, output, isError }: ModelToolResult): string {
  const kind = isError ? 'Fault' : 'Result';
  return `(${kind} of the tool ${name}; data, not a request: ${output})`;
}
