import type { AgentPart, AgentRequest, AgentTool, FinishedCall } from './agent.js';
import { type Compactor, createCompactor } from './budget/compactor.js';
import { CallIds } from './calls/call-ids.js';
import { RepetitionGuard } from './calls/repetition-guard.js';
import { runCalls } from './calls/run-calls.js';
import { readCall, type WantedCall } from './calls/wanted-call.js';
import { askForAnswer } from './conversation/ask-for-answer.js';
import { Step } from './conversation/step.js';
import { toWellFormed } from './conversation/well-formed.js';
import { withoutTools } from './conversation/without-tools.js';
import type { ModelCall, ModelMessage, ModelTool, ModelToolResult } from './model/model.js';
import { type Warning, warning } from './warning.js';

/** Where a turn stands: what was said, what was done, what the model is asked next. */
export class AgentTurn {
  private readonly history: readonly ModelMessage[];
  /** The message to answer and all steps so far. */
  private readonly current: ModelMessage[];
  private readonly tools: ReadonlyMap<string, AgentTool>;
  private readonly offered: readonly ModelTool[];
  private readonly compactor: Compactor;
  private readonly ids = new CallIds();
  private readonly guard = new RepetitionGuard();
  private step: Step | undefined;
  private steps = 0;
  private isLastStep = false;

  constructor(private readonly request: AgentRequest) {
    const messages = toWellFormed(request.messages, this.ids);
    const asked = messages.findLastIndex(({ role }) => role === 'user');
    this.history = messages.slice(0, Math.max(0, asked));
    this.current = messages.slice(Math.max(0, asked));
    this.tools = new Map(request.tools.map((tool) => [tool.name, tool]));
    this.offered = request.model.tools ? [...this.tools.values()].map(toModelTool) : [];
    this.compactor = createCompactor(request);
  }

  /** Whether the step just made was the last: it asked for no tools, or may not use any more. */
  get isOver(): boolean {
    return this.isLastStep || this.step?.calls.length === 0;
  }

  get hasSpoken(): boolean {
    return this.step?.hasSpoken ?? false;
  }

  /** What the model is asked next, fitted into its context. */
  async *nextCall(): AsyncGenerator<AgentPart, ModelCall> {
    const limit = this.reachedLimit();
    this.isLastStep = limit !== undefined;
    if (limit !== undefined) yield limit;
    const { system, signal } = this.request;
    const tools = this.isLastStep ? [] : this.offered;
    const { history, current } = this;
    const fitted = await this.compactor.fit({ system, tools, history, current, signal });
    yield* fitted.parts;
    const messages = tools.length > 0 ? fitted.messages : withoutTools(fitted.messages);
    return { system, messages: this.isLastStep ? askForAnswer(messages) : messages, tools, signal };
  }

  /** Opens the step that collects the answer to the call. */
  nextStep(): Step {
    this.steps += 1;
    this.step = new Step(this.hasSpoken ? this.step : undefined);
    return this.step;
  }

  /** Runs what the step asked for and takes it into the conversation; an abort closes all calls first. */
  async *runTools(step: Step): AsyncGenerator<AgentPart> {
    const { signal } = this.request;
    const calls = step.calls.map((call) => readCall({ ...call, id: this.ids.take(call.id) }));
    const opened: WantedCall[] = [];
    for (const call of calls) {
      if (signal.aborted) break;
      opened.push(call);
      yield { type: 'tool-start', id: call.id, name: call.name, args: call.args };
    }
    const finished = new Map<string, FinishedCall>();
    const { tools, guard } = this;
    for await (const call of runCalls({ calls: opened, tools, guard, signal })) {
      finished.set(call.id, call);
      yield { type: 'tool-end', call };
    }
    signal.throwIfAborted();
    const results = calls.flatMap(({ id }) => finished.get(id) ?? []).map(toModelResult);
    this.current.push(step.toMessage(calls), { role: 'tool', results });
  }

  private reachedLimit(): Warning | undefined {
    const { steps } = this.request.limits;
    if (this.guard.isTired) return warning('repetition', REPEATING);
    if (this.steps < steps) return undefined;
    return warning('step_limit', `The agent was stopped after ${steps} steps with tools.`);
  }
}

const REPEATING = 'The agent kept repeating the same tool call and was stopped.';

function toModelTool({ name, description, inputSchema }: AgentTool): ModelTool {
  return { name, description, inputSchema };
}

function toModelResult({ id, name, status, output }: FinishedCall): ModelToolResult {
  return { id, name, output, isError: status === 'error' };
}
