import {
  type GateRequest,
  type MessageGate,
  type Middleware,
  type ModelMessage,
  type ModelRequest,
  type ModelUse,
  OracleError,
  type TurnHold,
  type UserPart,
  withTimeout,
} from '@sibyl/plugin-kit';
import { computeCost, type Prices, sumByModel } from './prices.js';
import type { ReservationKey, Reservations } from './reservations.js';

const CHARACTERS_PER_TOKEN = 4;

export interface CreditGateDeps {
  readonly reservations: Reservations;
  readonly holds: ActiveHolds;
  readonly prices: Prices;
  /** Set aside for every turn, in addition to the price of its message. */
  readonly turnMinimum: number;
  readonly answerTokens: number;
}

/** Admits a turn once credit for it is set aside. */
export class CreditGate implements MessageGate {
  private readonly deps: CreditGateDeps;

  constructor(deps: CreditGateDeps) {
    this.deps = deps;
  }

  async admit(request: GateRequest): Promise<TurnHold> {
    const { holds, ...deps } = this.deps;
    const { owner, sessionId, requestId } = request;
    const reserved = this.estimate(request);
    const wanted = { owner, sessionId, requestId, amount: reserved };
    const key = await deps.reservations.reserve(wanted);
    const onSettled = (settled: CreditHold) => holds.remove(settled);
    const hold = new CreditHold({ ...deps, request, key, reserved, onSettled });
    holds.add(hold);
    return hold;
  }

  private estimate({ model, length }: GateRequest): number {
    const input = Math.ceil(length / CHARACTERS_PER_TOKEN);
    const { turnMinimum, prices } = this.deps;
    return turnMinimum + computeCost([{ model, input, cached: 0, output: 0 }], prices);
  }
}

/** A model call that is planned or in progress. */
interface PlannedCall {
  readonly model: string;
  /** Estimated input tokens. */
  readonly input: number;
}

interface CreditHoldDeps {
  readonly request: GateRequest;
  readonly key: ReservationKey;
  /** The credit set aside when the turn was admitted. */
  readonly reserved: number;
  readonly reservations: Reservations;
  readonly prices: Prices;
  /** Output tokens that must be paid for before a model is called. */
  readonly answerTokens: number;
  readonly onSettled: (hold: CreditHold) => void;
}

/** The credit set aside for one turn: grows before each model call, and is settled when the turn ends. */
export class CreditHold implements TurnHold {
  private readonly deps: CreditHoldDeps;
  /** Agents of one turn may call models at the same time. */
  private readonly planned = new Set<PlannedCall>();
  private used: readonly ModelUse[] = [];
  private reserved: number;
  private incurred = 0;
  private final: readonly ModelUse[] | undefined;

  constructor(deps: CreditHoldDeps) {
    this.deps = deps;
    this.reserved = deps.reserved;
  }

  get request(): GateRequest {
    return this.deps.request;
  }

  async check(used: readonly ModelUse[]): Promise<void> {
    this.used = used;
    await this.extend();
  }

  /** Sets credit aside for a call; throws if there is not enough. */
  async prepare(call: PlannedCall): Promise<void> {
    this.planned.add(call);
    await failClosed(this.extend());
  }

  /** The call has ended: it now counts by its real usage. */
  conclude(call: PlannedCall): void {
    this.planned.delete(call);
  }

  async settle(used: readonly ModelUse[]): Promise<void> {
    const { reservations, key, prices, onSettled } = this.deps;
    this.final = used;
    const usage = JSON.stringify(sumByModel(used));
    await reservations.settle(key, { cost: computeCost(used, prices), usage });
    onSettled(this);
  }

  /** Retries to settle a turn that has ended. */
  async settleIfEnded(): Promise<void> {
    if (this.final) await this.settle(this.final);
  }

  private async extend(): Promise<void> {
    const { reservations, key, answerTokens } = this.deps;
    const incurred = this.estimateCost(0);
    const amount = Math.max(this.reserved, this.estimateCost(answerTokens));
    if (amount === this.reserved && incurred === this.incurred) return;
    await reservations.extend(key, { amount, incurred });
    this.reserved = Math.max(this.reserved, amount);
    this.incurred = incurred;
  }

  /** The cost of what was used and of the planned calls with so many output tokens each. */
  private estimateCost(output: number): number {
    const planned = [...this.planned].map(({ model, input }) => ({
      model,
      input,
      cached: 0,
      output,
    }));
    return computeCost([...this.used, ...planned], this.deps.prices);
  }
}

interface TurnKey {
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
}

/** The holds of this process by turn. */
export class ActiveHolds {
  private readonly holds = new Map<string, CreditHold[]>();

  add(hold: CreditHold): void {
    const key = toKey(hold.request);
    this.holds.set(key, [...(this.holds.get(key) ?? []), hold]);
  }

  /** Turns of one session run one after the other, so of several with one request id the first is running. */
  find(turn: TurnKey): CreditHold | undefined {
    return this.holds.get(toKey(turn))?.[0];
  }

  /** Retries to settle the turns that have ended. */
  async settleEnded(): Promise<void> {
    const holds = [...this.holds.values()].flat();
    await Promise.all(holds.map((hold) => hold.settleIfEnded()));
  }

  remove(hold: CreditHold): void {
    const key = toKey(hold.request);
    const left = this.holds.get(key)?.filter((other) => other !== hold) ?? [];
    if (left.length > 0) this.holds.set(key, left);
    else this.holds.delete(key);
  }
}

function toKey({ owner, sessionId, requestId }: TurnKey): string {
  return JSON.stringify([owner, sessionId, requestId]);
}

/** Shorter than the host's time limit for middlewares, so that users get the better error. */
const LEDGER_TIMEOUT_MS = 12_000;

/** Refuses the call with `store_unavailable` if the ledger fails or hangs. */
async function failClosed<T>(work: Promise<T>): Promise<T> {
  const limit = { ms: LEDGER_TIMEOUT_MS, message: 'The ledger timed out' };
  try {
    return await withTimeout(limit, () => work);
  } catch (cause) {
    if (cause instanceof OracleError) throw cause;
    throw new OracleError('store_unavailable', { cause, retryAfterSeconds: 5 });
  }
}

/** Sets credit aside for each model call before it is made. */
export const creditMiddleware = (holds: ActiveHolds): Middleware => ({
  name: 'credits',
  wrapModel: async (request, next, { user, session }) => {
    const { id: sessionId, requestId } = session;
    const hold = holds.find({ owner: user.did, sessionId, requestId });
    // The gate creates a hold for every turn; without one, nothing could be charged for the call.
    if (!hold) throw new OracleError('gate_unavailable');
    const call = { model: request.model.id, input: estimateRequest(request) };
    try {
      await hold.prepare(call);
      return await next(request);
    } finally {
      hold.conclude(call);
    }
  },
});

const BYTES_PER_TOKEN = 4;
const IMAGE_TOKENS = 1500;
const DOCUMENT_BYTES_PER_TOKEN = 20;

/** Estimates by bytes, since characters of other scripts take more tokens. */
function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

/** Estimates the input tokens of a model call. */
export function estimateRequest({ system, messages, tools }: ModelRequest): number {
  const texts = [system, ...messages.map(readText), JSON.stringify(tools)];
  const tokens = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
  return messages.flatMap(listFiles).reduce((sum, file) => sum + estimateFile(file), tokens);
}

function readText(message: ModelMessage): string {
  switch (message.role) {
    case 'user':
      return [readContent(message), message.note ?? ''].join('\n');
    case 'assistant':
      return [message.text, message.reasoning ?? '', JSON.stringify(message.toolCalls ?? [])].join(
        '\n',
      );
    case 'tool':
      return message.results.map(({ output }) => output).join('\n');
    default:
      return message satisfies never;
  }
}

function readContent({ content }: Extract<ModelMessage, { role: 'user' }>): string {
  if (typeof content === 'string') return content;
  return content.map((part) => (part.type === 'text' ? part.text : '')).join('\n');
}

type FilePart = Extract<UserPart, { type: 'file' }>;

function listFiles(message: ModelMessage): FilePart[] {
  if (message.role !== 'user' || typeof message.content === 'string') return [];
  return message.content.filter((part) => part.type === 'file');
}

function estimateFile({ mediaType, data }: FilePart): number {
  if (mediaType.startsWith('text/')) return Math.ceil(data.byteLength / BYTES_PER_TOKEN);
  if (mediaType.startsWith('image/')) return IMAGE_TOKENS;
  return Math.max(IMAGE_TOKENS, Math.ceil(data.byteLength / DOCUMENT_BYTES_PER_TOKEN));
}
