import type { AgentPart, AgentRequest, AgentTool, FinishedCall } from './agent.js';
import { type Compactor, createCompactor } from './budget/compactor.js';
import { CallIds } from './calls/call-ids.js';
import { RepetitionGuard } from './calls/repetition-guard.js';
import { runCalls } from './calls/run-calls.js';
import { untilAborted } from './calls/until-aborted.js';
import { readCall, type WantedCall } from './calls/wanted-call.js';
import { askForAnswer } from './conversation/ask-for-answer.js';
import { Step } from './conversation/step.js';
import { toWellFormed } from './conversation/well-formed.js';
import { withoutTools } from './conversation/without-tools.js';
import type { ModelCall, ModelMessage, ModelToolResult } from './model/model.js';
import { NOTHING, narrowed, type Offer, offerOf } from './offer.js';
import { type Warning, warning } from './warning.js';

/** Where a turn stands: what was said, what was done, what the model is asked next. */
export class AgentTurn {
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
