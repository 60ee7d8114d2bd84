import { isDeepStrictEqual } from 'node:util';
import type { ApprovedDelegation, Tool, ToolDelegation, TurnContext } from '@sibyl/plugin-kit';
import type { TurnUcan } from '@sibyl/plugin-kit/host';
import { findClientToolCall } from '@sibyl/plugin-kit/surface';
import {
  type AccessKeyCaveats,
  ApprovalDelegation,
  hashJson,
  type JsonObject,
  measureJson,
  RUN_ABILITY,
  type RuleEffect,
} from '@sibyl/protocol';
import { abortable } from '@sibyl/server-kit';
import type { AgentCall, AgentTool } from '../../agent/agent.js';
import { readAnswer } from '../../agent/call-interrupts.js';
import { type ApprovalRequest, type InterruptRequest, isPause } from '../../agent/steps.js';
import {
  findEffect,
  type LiveRules,
  matches,
  type RuleTarget,
  strictest,
} from '../../auth/user-rules.js';
import type { ApprovalAnswer } from '../../store/approval-store.js';
import { type Hooks, withSignal } from './hooks.js';

/** Limits of arguments that a user can approve: they are stored until then. */
const ARGS_LIMITS = { depth: 100, values: 10_000, characters: 128 * 1024 };

interface ToolPolicyDeps {
  /** The matches of `APPROVALS`. */
  readonly operator: readonly string[];
  readonly rules: LiveRules;
  readonly hooks: Hooks;
  /** What a plugin may sign, apart from the rules. */
  readonly createUcan: (plugin: string) => TurnUcan;
  /** Called after each run of a tool, also one that was aborted. */
  readonly onRan: (call: RanCall) => void;
}

/** A tool that has run. */
export interface RanCall {
  readonly callId: string;
  readonly tool: string;
  readonly outcome: 'done' | 'error';
}

/** A tool of a turn, as rules and its plugin see it. */
export interface ToolFacts {
  readonly tool: string;
  readonly plugin: string;
  readonly needsApproval?: Tool['needsApproval'] | undefined;
  readonly delegates?: Tool['delegates'];
  readonly getContext: () => TurnContext;
}

/** Decides which calls of a turn run: what the tools, the operator and the user require. */
export class ToolPolicy {
  /** Calls whose approval is used up. */
  private readonly spent = new WeakSet<AgentCall>();
  /** Asks for the approval of a running call. */
  private readonly askers = new WeakMap<AgentCall, () => Promise<void>>();

  constructor(private readonly deps: ToolPolicyDeps) {}

  /** Whether the rules of the user leave the tool out of the turn. */
  isBlocked(target: RuleTarget): boolean {
    // Operators block nothing.
    return findEffect(this.deps.rules.rules, target) === 'block';
  }

  /**
   * Guards a tool inside of `wrap`, so that what is approved is exactly what runs. Arguments that the user edited pass through
   * `wrap` again, because it may restrict them.
   */
  guard(tool: AgentTool, facts: ToolFacts, wrap: (tool: AgentTool) => AgentTool): AgentTool {
    const guarded = wrap({ ...tool, run: (input, call) => this.run({ tool, facts, input, call }) });
    return {
      ...guarded,
      run: async (input, call) => {
        const edited = findEdited(call);
        if (!edited) return guarded.run(input, call);
        const result = await guarded.run(await parseEdited(tool, edited), toEditedCall(call));
        return { note: EDITED, input: edited, result };
      },
    };
  }

  /** What a plugin may sign in the name of the user: in a call, or outside of one. */
  restrictUcan(plugin: string, call?: AgentCall): TurnUcan {
    const ucan = this.deps.createUcan(plugin);
    const permit = async ({ can }: { readonly can: string }) => {
      const effect = this.findEffect({ can });
      if (effect === 'block') throw new Error(`Not signed: the rules of the user block ${can}.`);
      if (effect === 'ask' && !call?.decision) await this.askFor(can, call);
    };
    return {
      ...ucan,
      hasCapability: async (wanted) =>
        this.findEffect(wanted) !== 'block' && ucan.hasCapability(wanted),
      requireCapability: async (wanted) => {
        await permit(wanted);
        await ucan.requireCapability(wanted);
      },
      mintInvocation: async (request) => {
        await permit(request);
        return ucan.mintInvocation(request);
      },
    };
  }

  private async askFor(can: string, call: AgentCall | undefined): Promise<void> {
    const ask = call && this.askers.get(call);
    if (!ask) throw new Error(`Not signed: ${can} needs the approval of a tool call.`);
    await ask();
  }

  private async run(asked: ToolRun): Promise<unknown> {
    const { facts, call } = asked;
    const effect = this.findEffect(facts);
    if (effect === 'block') throw new Error(BLOCKED);
    const requiredBy = call.decision
      ? call.decision.request.requiredBy
      : await this.findRequirement(effect, asked);
    if (!requiredBy) return this.runCovered(asked);
    const shown = { ...asked, input: await toShownInput(asked) };
    await this.requireApproval(shown, requiredBy);
    return this.runCovered(shown);
  }

  private findEffect(target: RuleTarget): RuleEffect {
    const { operator, rules } = this.deps;
    const required = operator.map((match) => ({ match, effect: 'ask' }) as const);
    return strictest(findEffect(required, target), findEffect(rules.rules, target));
  }

  private async findRequirement(
    effect: RuleEffect,
    asked: ToolRun,
  ): Promise<ApprovalRequest['requiredBy'] | undefined> {
    if (await this.isNeeded(asked)) return 'tool';
    if (effect === 'allow') return undefined;
    return this.deps.operator.some((match) => matches(match, asked.facts)) ? 'operator' : 'rules';
  }

  /** A function that fails, or returns anything but false, means that approval is needed. */
  private async isNeeded({ facts, input, call }: ToolRun): Promise<boolean> {
    const { tool, plugin, needsApproval, getContext } = facts;
    if (typeof needsApproval !== 'function') return needsApproval === true;
    const { id: toolCallId, signal } = call;
    const hook = { plugin, hook: `needsApproval of ${tool}`, signal };
    const answer = await this.deps.hooks.callOptional(hook, (limit) =>
      needsApproval(input, withSignal({ ...getContext(), toolCallId }, limit)),
    );
    return !('ok' in answer) || answer.ok !== false;
  }

  /** Returns if the user has approved exactly this call; otherwise it throws, or the call waits. */
  private async requireApproval(
    asked: ToolRun,
    requiredBy: ApprovalRequest['requiredBy'],
  ): Promise<void> {
    const { tool, input, call } = asked;
    const { decision } = call;
    if (!decision) return this.ask(asked, requiredBy);
    const answer = readAnswer(decision.answer) as ApprovalAnswer;
    if (answer.decision !== 'approve') throw new Error(describeDenial(answer));
    const approved = await listApproved(tool, decision.request, answer);
    if (!approved.includes(await hashArgs(toArgs(input)))) return this.ask(asked, requiredBy);
    if (this.spent.has(call)) throw new Error('The approval of this call is used up.');
    this.spent.add(call);
  }

  private async ask(asked: ToolRun, requiredBy: ApprovalRequest['requiredBy']): Promise<void> {
    const { tool, facts, call } = asked;
    const args = toArgs(await toShownInput(asked));
    const argsHash = await hashArgs(args);
    const { inputSchema } = tool;
    const delegates = await this.findDelegation(asked);
    const approval = { ...pickNames(facts), args, argsHash, inputSchema, requiredBy, delegates };
    // Returns if an earlier attempt has asked exactly this.
    const answer = call.interrupt({ kind: 'confirmation', schema: {}, approval }) as ApprovalAnswer;
    if (answer.decision !== 'approve') throw new Error(describeDenial(answer));
    if (answer.args) throw new Error(REPLACED);
  }

  /** What approving the call delegates. Without it, the call is approved all the same. */
  private async findDelegation({
    facts,
    input,
    call,
  }: ToolRun): Promise<ApprovalDelegation | undefined> {
    const { tool, plugin, delegates, getContext } = facts;
    if (!delegates) return undefined;
    const { id: toolCallId, signal } = call;
    const hook = { plugin, hook: `delegates of ${tool}`, signal };
    const answer = await this.deps.hooks.callOptional(hook, async (limit) =>
      toDelegation(await delegates(input, withSignal({ ...getContext(), toolCallId }, limit))),
    );
    return 'ok' in answer ? answer.ok : undefined;
  }

  /** Runs the tool until it ends, or until a change of the rules no longer covers it. */
  private async runCovered(asked: ToolRun): Promise<unknown> {
    const { tool, facts, input, call } = asked;
    const change = new AbortController();
    const signal = AbortSignal.any([call.signal, change.signal]);
    const covered = { ...call, signal };
    this.askers.set(covered, () => this.ask(asked, 'rules'));
    const stop = this.deps.rules.onChange(() => {
      const effect = this.findEffect(facts);
      if (effect === 'block' || (effect === 'ask' && !call.decision))
        change.abort(new Error(NO_LONGER_ALLOWED));
    });
    const ran = { callId: call.id, tool: facts.tool };
    try {
      const result = await abortable(() => tool.run(input, covered), signal);
      // It waits even if the tool caught that.
      call.throwIfPaused();
      this.deps.onRan({ ...ran, outcome: 'done' });
      return result;
    } catch (error) {
      if (!isPause(error)) this.deps.onRan({ ...ran, outcome: 'error' });
      throw error;
    } finally {
      stop();
    }
  }
}

/** The reach of a tool; a tool of the program that sent the message uses nothing that is stored. */
export type ToolReach = Tool['reach'] | 'client';

interface TurnTerms {
  readonly caveats?: Pick<AccessKeyCaveats, 'session' | 'tools'> | undefined;
  /** The person that the session of the turn belongs to. */
  readonly subUser?: string | undefined;
}

/** What a turn may use of what is stored for its user, by its access key and its session. */
export class TurnReach {
  /** The names of the only tools that the turn may use. */
  private readonly named: readonly string[] | undefined;
  readonly reach: TurnContext['reach'];
  /** Whether plugins contribute less than to other turns. */
  readonly isLimited: boolean;

  constructor({ caveats = {}, subUser }: TurnTerms) {
    this.named = caveats.tools;
    const own = subUser === undefined ? 'user' : 'sub-user';
    this.reach = caveats.session === undefined ? own : 'session';
    this.isLimited = this.named !== undefined || this.reach !== 'user';
  }

  /** What does not say how far it reaches may reach everything. */
  permitsTool(name: string, reach: ToolReach): boolean {
    if (!this.isLimited || reach === 'client') return true;
    return this.covers(reach) && (this.named?.includes(name) ?? true);
  }

  /** Whether a plugin may add what reaches that to a turn unasked. */
  permitsAddition(reach: Tool['reach']): boolean {
    if (!this.isLimited) return true;
    return this.covers(reach) && (this.named === undefined || reach !== undefined);
  }

  private covers(reach: Tool['reach']): boolean {
    switch (this.reach) {
      case 'user':
        return true;
      case 'sub-user':
        return reach !== undefined;
      case 'session':
        return reach === 'session';
      default:
        this.reach satisfies never;
        return false;
    }
  }
}

/** One run of a tool. */
interface ToolRun {
  readonly tool: AgentTool;
  readonly facts: ToolFacts;
  readonly input: JsonObject;
  readonly call: AgentCall;
}

/** What the user delegated with the approval of a call. */
export function findApproved({ decision }: AgentCall): ApprovedDelegation | undefined {
  const { delegates } = decision?.request ?? {};
  if (!delegates || decision?.answer.status !== 'answered') return undefined;
  const { delegation } = decision.answer.value as ApprovalAnswer;
  return delegation && { ...delegation, resource: delegates.with };
}

const DAY_SECONDS = 24 * 60 * 60;

/** As it is stored and shown; throws for the author of the tool. */
function toDelegation({ resource, terms, days }: ToolDelegation): ApprovalDelegation {
  const expiresInSeconds = Math.ceil(days * DAY_SECONDS);
  if (Object.keys(terms).length === 0 || measureJson(terms, ARGS_LIMITS).excess)
    throw new TypeError('the terms must be at least one, and small enough to be shown');
  return ApprovalDelegation.parse({
    ...{ can: RUN_ABILITY, with: resource, expiresInSeconds },
    terms: JSON.parse(JSON.stringify(terms)),
  });
}

const pickNames = ({ tool, plugin }: ToolFacts) => ({ tool, plugin });

const BLOCKED = 'Not run: the rules of the user block this tool.';
const NO_LONGER_ALLOWED =
  'Stopped: the user has changed the rules, and they no longer allow this call. It may or may not have had its effect.';
const REPLACED = 'Not run: the user approved this call only with another input.';
const EDITED = 'The user changed the input before approving the call.';

function describeDenial({ reason }: ApprovalAnswer): string {
  return reason
    ? `Not run: the user denied this call. Reason: ${reason}`
    : 'Not run: the user denied this call without a reason.';
}

/** The arguments as JSON, as they are shown and signed. */
function toArgs(input: JsonObject): JsonObject {
  const { excess } = measureJson(input, ARGS_LIMITS);
  if (excess) throw new Error(`Not run: this call needs approval, and its input ${excess}.`);
  try {
    return JSON.parse(JSON.stringify(input));
  } catch (cause) {
    throw new Error(NOT_JSON, { cause });
  }
}

/**
 * What the tool receives of an input that needs approval: what is shown, or what the schema makes of that. A schema may make objects
 * whose JSON does not show what they hold, such as a Map, which is `{}`: they cannot be approved.
 */
async function toShownInput({ tool, input }: Pick<ToolRun, 'tool' | 'input'>): Promise<JsonObject> {
  const args = toArgs(input);
  if (isPlain(input)) return args;
  const { ok } = await tool.check(args);
  if (ok && isDeepStrictEqual(ok, input)) return ok;
  throw new Error(NOT_JSON);
}

const NOT_JSON =
  "Not run: this call needs approval, and the tool's schema makes values of its input that cannot be shown as JSON. The author of the tool can convert them in the tool instead.";

/** Whether the JSON of a value has all of it. Members that are undefined are absent. */
function isPlain(value: unknown): boolean {
  if (Array.isArray(value)) return value.every(isPlain);
  if (typeof value !== 'object' || value === null)
    return ['string', 'boolean'].includes(typeof value) || value === null || Number.isFinite(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in value) return false;
  return Object.values(value).every((inner) => inner === undefined || isPlain(inner));
}

async function hashArgs(args: JsonObject): Promise<string> {
  return hashJson(args).catch((error) => {
    throw new Error('Not run: the input contains invalid Unicode, so it cannot be approved.', {
      cause: error,
    });
  });
}

/** The arguments that the user wrote instead of the model's. */
function findEdited({ decision }: AgentCall): JsonObject | undefined {
  if (decision?.answer.status !== 'answered') return undefined;
  const { decision: decided, args } = decision.answer.value as ApprovalAnswer;
  return decided === 'approve' ? args : undefined;
}

/** A client that has already seen the call would run its tool with the input of the model: to it, this is another call. */
function toEditedCall(call: AgentCall): AgentCall {
  const rename = (request: InterruptRequest): InterruptRequest => {
    const { kind, data } = request;
    const isClientTool =
      kind === 'tool_call' && findClientToolCall({ data })?.toolCallId === call.id;
    if (!isClientTool) return request;
    return { ...request, data: { ...Object(data), toolCallId: `${call.id}_edited` } };
  };
  return { ...call, interrupt: (request) => call.interrupt(rename(request)) };
}

async function parseEdited(tool: AgentTool, edited: JsonObject): Promise<JsonObject> {
  const { ok, error } = await tool.check(edited);
  if (ok) return ok;
  throw new Error(`Not run: the input that the user wrote does not fit: ${error?.join('; ')}`);
}

/** The hashes of what a call may run with: the approved arguments, and what the schema of the tool makes of edited ones. */
async function listApproved(
  tool: AgentTool,
  { argsHash }: ApprovalRequest,
  { args }: ApprovalAnswer,
): Promise<readonly string[]> {
  if (!args) return [argsHash];
  return [await hashArgs(args), await hashArgs(toArgs(await parseEdited(tool, args)))];
}
