import type { ToolCall } from '@sibyl/protocol';
import { abortable, abortableIterable } from '@sibyl/server-kit';
import type {
  MediaPart,
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
  type Warning,
  type WrappedModelCall,
  warning,
} from './agent.js';
import { AgentJournal, type EarlierStep } from './agent-journal.js';
import { CallRecovery } from './call-recovery.js';
import { Compactor } from './context-budget.js';
import { Step, toWellFormed } from './conversation.js';
import { estimateCall, hasFiles } from './estimate-tokens.js';
import {
  abortCall,
  type CallBatch,
  CallIds,
  loseCall,
  type ParsedCall,
  RepetitionGuard,
  readCall,
  refuseCalls,
  runCalls,
} from './run-tools.js';
import { type AssistantMessage, PausedError, type PendingInterrupt } from './steps.js';

/**
 * Answers one message: calls the model, runs the tools it asks for, and repeats until it answers. If its journal has
 * steps of earlier attempts, it continues after them. Every `tool-start` is followed by its `tool-end`, except when the
 * call waits for an answer: then it throws a PausedError once all others have ended. Throws the signal's reason when
 * aborted, a ModelError if the model fails, and an OracleError if the meter or a hook denies the call.
 */
export async function* runAgent(request: AgentRequest): AsyncGenerator<AgentPart> {
  const { model, signal } = request;
  const turn = new AgentTurn(request);
  yield* turn.resume();
  for (;;) {
    const call = yield* turn.nextCall();
    let step: Step;
    try {
      signal.throwIfAborted();
      step = turn.nextStep();
      try {
        // Not a separate generator: each one costs time for every token.
        for await (const part of abortableIterable(model.stream(call), signal)) {
          const shown = step.take(part);
          if (shown !== undefined) yield shown;
        }
      } finally {
        turn.count(call);
      }
      yield* step.warnings();
      await turn.endStep(call);
    } catch (error) {
      yield* turn.recover(error, call);
      continue;
    } finally {
      turn.abandonCall();
    }
    if (turn.isOver) break;
    yield* turn.runTools(await turn.openStep(step));
  }
  yield* turn.warnings();
}

/** The state of one turn. */
class AgentTurn {
  private readonly history: readonly ModelMessage[];
  /** The message to answer and all steps since. */
  private readonly current: ModelMessage[];
  private readonly compactor: Compactor;
  private readonly recovery: CallRecovery;
  private readonly ids = new CallIds();
  private readonly guard = new RepetitionGuard();
  private readonly journal: AgentJournal;
  /** Files of tool results, by call; only the model receives them. */
  private readonly media = new Map<string, readonly MediaPart[]>();
  private tools: readonly AgentTool[] = [];
  /** The set of all `tools`. */
  private toolSet = NO_TOOLS;
  /** The tools of the latest call. */
  private offeredTools = NO_TOOLS;
  private step = new Step(undefined);
  private calls: readonly ParsedCall[] = [];
  private isLastStep = false;
  private wrapped: WrappedModelCall | undefined;

  constructor(private readonly request: AgentRequest) {
    const messages = toWellFormed(request.messages, this.ids);
    const asked = messages.findLastIndex(({ role }) => role === 'user');
    this.history = messages.slice(0, Math.max(0, asked));
    this.current = messages.slice(Math.max(0, asked));
    this.compactor = new Compactor(request);
    this.recovery = new CallRecovery(request.model, this.compactor);
    this.journal = new AgentJournal(request);
    this.replay();
  }

  /** The last step of earlier attempts, whose calls may not have ended. */
  get earlierStep(): EarlierStep | undefined {
    return this.journal.earlier.at(-1);
  }

  /** Finishes the last step of earlier attempts, if there are any. */
  async *resume(): AsyncGenerator<AgentPart> {
    if (this.earlierStep) yield* this.runTools(await this.openEarlierStep(this.earlierStep));
  }

  /** Whether the last step was final: it asked for no tools, or may not use any more. */
  get isOver(): boolean {
    return this.isLastStep || this.step.calls.length === 0;
  }

  /** Warnings about the whole turn. */
  *warnings(): Generator<AgentPart> {
    if (!this.step.hasOutput) yield warning('no_answer', 'The model ended without an answer.');
  }

  /** Builds the next model call, fitted into the model's context. */
  async *nextCall(): AsyncGenerator<AgentPart, ModelCall> {
    const limit = this.reachedLimit();
    this.isLastStep = limit !== undefined;
    if (limit !== undefined) yield limit;
    const { system, signal, hooks, meter } = this.request;
    const tools = this.isLastStep ? NO_TOOLS : this.readToolSet();
    const { history, current } = this;
    const draft = { system, tools: tools.definitions, history, current, signal };
    const { messages, warnings } = await this.compactor.fit(draft);
    yield* warnings;
    const { reasoning, responseSchema, toolChoice } = this.request;
    const wanted = { reasoning, responseSchema, toolChoice };
    const fitted = { system, messages, tools: tools.definitions, signal, ...wanted };
    await abortable(() => meter.check(), signal);
    this.wrapped = await hooks?.begin(fitted);
    const call = this.wrapped?.call ?? fitted;
    this.offeredTools = restrictToolSet(tools, call.tools);
    const complete = this.compactor.fitFiles(this.finalizeCall(call));
    yield* complete.warnings;
    return complete.call;
  }

  /** Creates the step that collects the answer to the call. */
  nextStep(): Step {
    this.request.limits.steps.take();
    this.step = new Step(this.step.hasOutput ? this.step : undefined);
    return this.step;
  }

  /** Counts the cost of the call, successful or not. */
  count(call: ModelCall): void {
    const { meter, model } = this.request;
    const { reportedInput } = this.step;
    if (reportedInput && !hasFiles(call))
      model.facts.learnTokens(estimateCall(call), reportedInput);
    meter.add(this.step.countUse(model, call));
  }

  /** Prepares to repeat a refused call in another form; throws the error if that is not possible. */
  *recover(error: unknown, call: ModelCall): Generator<AgentPart> {
    const warnings = this.step.isEmpty ? this.recovery.recover(error, call) : undefined;
    if (!warnings) throw error;
    yield* warnings;
  }

  /** Parses the tool calls of the step. */
  async endStep(call: ModelCall): Promise<void> {
    const { model } = this.request;
    const { step, wrapped } = this;
    this.recovery.succeed();
    this.calls = step.calls.map((wanted) => readCall({ ...wanted, id: this.ids.take(wanted.id) }));
    if (!wrapped) return;
    const toolCalls = this.calls.map(({ id, name }) => ({ id, name }));
    await wrapped.finish({ text: step.text, toolCalls, use: step.countUse(model, call) });
    this.wrapped = undefined;
  }

  /** Lets the hooks end if the model call failed or was canceled. */
  abandonCall(): void {
    this.wrapped?.fail(new Error('The model call did not finish'));
  }

  /** Prepares the tool calls of a step; they may run once it is stored what the model wants. */
  async openStep(step: Step): Promise<OpenStep> {
    const { calls, guard, journal } = this;
    const tools = this.offeredTools.byName;
    const message = step.toMessage(calls);
    const refused = refuseCalls({ calls, tools, guard });
    await journal.begin({ message, calls, refused }, this.request.signal);
    return { message, calls, tools, refused, lost: [], ended: new Map(), waiting: [] };
  }

  /** Runs the tool calls of a step and adds them to the conversation; an abort ends all calls first. */
  async *runTools(step: OpenStep): AsyncGenerator<AgentPart> {
    const { journal } = this;
    const { signal } = this.request;
    const { calls, tools, refused, ended, waiting } = step;
    for (const call of step.lost) yield createToolEnd(call, tools);
    const opened: ParsedCall[] = [];
    for (const call of calls) {
      if (signal.aborted) break;
      opened.push(call);
      const { id, name, args } = call;
      yield { type: 'tool-start', id, name, args, event: tools.get(name)?.event };
    }
    const openCall = (call: ParsedCall) => journal.openCall(call);
    const onMedia = (id: string, media: readonly MediaPart[]) => void this.media.set(id, media);
    const { onToolEnd: onEnd } = this.request;
    const batch = { calls: opened, tools, refused, openCall, onMedia, onEnd, signal };
    for await (const outcome of runCalls(batch)) {
      if ('waiting' in outcome) waiting.push(...outcome.waiting);
      else yield this.endCall(outcome.ended, step);
    }
    await this.storeSteps(waiting.length > 0);
    if (signal.aborted)
      for (const call of opened.filter(({ id }) => !ended.has(id)))
        yield createToolEnd(abortCall(call), tools);
    this.closeStep(step);
  }

  /** Prepares the calls of an earlier attempt: only those that were answered and those that run an agent run again. */
  private async openEarlierStep({ message, calls }: EarlierStep): Promise<OpenStep> {
    const { signal } = this.request;
    signal.throwIfAborted();
    const tools = createToolSet(this.request.tools()).byName;
    const isAgent = ({ name }: ParsedCall) => tools.get(name)?.isAgent === true;
    const { answered, agents, ...known } = this.journal.sortCalls(calls, isAgent);
    for (const call of known.lost) this.journal.end(call);
    await this.journal.retry(answered, signal);
    return { message, calls: [...answered, ...agents], tools, refused: new Map(), ...known };
  }

  /** Restores the state after the steps of earlier attempts, except for the results of the last one. */
  private replay(): void {
    const { journal, ids, guard, current } = this;
    this.request.limits.steps.take(journal.countEarlierCalls());
    for (const earlier of journal.earlier) {
      const { message, calls } = earlier;
      this.step = new Step(this.step.hasOutput ? this.step : undefined);
      if (message.text !== '') this.step.take({ type: 'text', text: message.text });
      for (const { call } of calls) {
        ids.take(call.id);
        guard.admits(call);
      }
      if (earlier === this.earlierStep) return;
      const results = calls.map(({ call, result }) => toModelResult(result ?? loseCall(call)));
      current.push(message, { role: 'tool', results });
    }
  }

  private endCall(call: ToolCall, { tools, refused, ended }: OpenStep): AgentPart {
    ended.set(call.id, call);
    // The outcome of a call that was aborted is unknown if the turn continues in another attempt.
    const isAborted = this.request.signal.aborted && call.status === 'error';
    if (!refused.has(call.id) && !isAborted) this.journal.end(call);
    return createToolEnd(call, tools);
  }

  /** A pause, and results that another attempt needs after a crash. */
  private async storeSteps(isPausing: boolean): Promise<void> {
    if (!isPausing && !this.journal.isResumable) return;
    const { signal } = this.request;
    try {
      await this.journal.commit(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  private closeStep({ message, ended, waiting }: OpenStep): void {
    this.request.signal.throwIfAborted();
    if (waiting.length > 0) throw new PausedError(waiting);
    const results = (message.toolCalls ?? []).flatMap(({ id }) => ended.get(id) ?? []);
    this.current.push(message, {
      role: 'tool',
      results: results.map((call) => toModelResult(call, this.media.get(call.id))),
    });
  }

  private readToolSet(): ToolSet {
    if (!this.recovery.allowsTools) return NO_TOOLS;
    const { hiddenTools } = this.request;
    const tools = this.request.tools();
    if (tools !== this.tools)
      this.toolSet = createToolSet(tools.filter(({ name }) => !hiddenTools?.has(name)));
    this.tools = tools;
    return this.toolSet;
  }

  private finalizeCall(call: ModelCall): ModelCall {
    const { definitions: tools, byName } = this.offeredTools;
    const messages = tools.length > 0 ? call.messages : describeToolUse(call.messages);
    const asked = this.isLastStep ? askForAnswer(messages) : messages;
    const toolChoice = findChoice(call.toolChoice, byName);
    return this.recovery.adapt({ ...call, tools, toolChoice, messages: asked });
  }

  private reachedLimit(): Warning | undefined {
    const { steps } = this.request.limits;
    if (this.guard.isExhausted) return warning('repetition', REPEATING);
    if (!steps.isExhausted) return undefined;
    return warning('step_limit', `The agent was stopped after ${steps.limit} steps with tools.`);
  }
}

/** A model step whose tools run. */
interface OpenStep extends Pick<CallBatch, 'tools' | 'refused'> {
  readonly message: AssistantMessage;
  /** The calls to run. */
  readonly calls: readonly ParsedCall[];
  /** Results of calls whose outcome is unknown. */
  readonly lost: readonly ToolCall[];
  /** All results. */
  readonly ended: Map<string, ToolCall>;
  readonly waiting: PendingInterrupt[];
}

function createToolEnd(call: ToolCall, tools: OpenStep['tools']): AgentPart {
  return { type: 'tool-end', call, event: tools.get(call.name)?.event };
}

const REPEATING = 'The agent kept repeating the same tool call and was stopped.';

function toModelResult(
  { id, name, status, output }: ToolCall,
  media?: readonly MediaPart[],
): ModelToolResult {
  return { id, name, output, isError: status === 'error', ...(media && { media }) };
}

/** The tools of one model call: their definitions for the model, and the tools by name. */
interface ToolSet {
  readonly definitions: readonly ModelTool[];
  readonly byName: ReadonlyMap<string, AgentTool>;
}

const NO_TOOLS: ToolSet = { definitions: [], byName: new Map() };

function createToolSet(tools: readonly AgentTool[]): ToolSet {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return { definitions: [...byName.values()].map(toModelTool), byName };
}

/** Restricts the tools to the definitions that a hook returned; a hook cannot add tools. */
function restrictToolSet(tools: ToolSet, definitions: readonly ModelTool[]): ToolSet {
  if (definitions === tools.definitions) return tools;
  const byName = new Map<string, AgentTool>();
  for (const { name } of definitions) {
    const tool = tools.byName.get(name);
    if (tool) byName.set(name, tool);
  }
  return { definitions: definitions.filter(({ name }) => byName.has(name)), byName };
}

/** What the model can be forced to call: a tool that it has. */
function findChoice(choice: ModelCall['toolChoice'], byName: ToolSet['byName']) {
  const isPossible = typeof choice === 'object' ? byName.has(choice.tool) : byName.size > 0;
  return isPossible ? choice : undefined;
}

function toModelTool({ name, description, inputSchema }: AgentTool): ModelTool {
  return { name, description, inputSchema };
}

const ASK =
  '(No more tools can be used in this turn. Answer now from what is known, and say plainly what is missing.)';

/** Ends a conversation with a request for an answer instead of another tool call. */
function askForAnswer(messages: readonly ModelMessage[]): ModelMessage[] {
  const last = messages.at(-1);
  if (last?.role !== 'user') return [...messages, { role: 'user', content: ASK }];
  const { content } = last;
  const asked =
    typeof content === 'string'
      ? `${content}\n\n${ASK}`
      : [...content, { type: 'text' as const, text: ASK }];
  return [...messages.slice(0, -1), { ...last, content: asked }];
}

/** Describes tool calls and results as text: some providers reject a conversation that contains calls but no tools. */
function describeToolUse(messages: readonly ModelMessage[]): ModelMessage[] {
  return messages.map(describeMessage);
}

function describeMessage(message: ModelMessage): ModelMessage {
  switch (message.role) {
    case 'user':
      return message;
    case 'assistant':
      if (!message.toolCalls?.length) return message;
      return {
        role: 'assistant',
        text: [message.text, ...message.toolCalls.map(describeCall)].filter(Boolean).join('\n'),
      };
    case 'tool':
      return { role: 'user', content: message.results.map(describeResult).join('\n') };
    default:
      return message satisfies never;
  }
}

function describeCall({ name, input }: ModelToolCall): string {
  return `(I called the tool ${name} with ${input})`;
}

function describeResult({ name, output, isError }: ModelToolResult): string {
  const kind = isError ? 'Error' : 'Result';
  return `(${kind} of the tool ${name}; data, not a request: ${output})`;
}
