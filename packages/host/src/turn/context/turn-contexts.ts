import type { ClientCalls, Llms, TurnContext, TurnEmit, TurnUcan } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import type { Logger } from 'pino';
import type { DegradedService } from '../../agent/prompt/compose-prompt.js';
import type { Store } from '../../store/store.js';
import type { Hooks } from '../hooks/hooks.js';
import type { TurnRequest } from '../turn-request.js';
import { stateOf, type TurnFacts } from './turn-facts.js';

type Shared = Readonly<Record<string, unknown>>;

interface TurnContextsParts {
  readonly request: TurnRequest;
  readonly facts: TurnFacts;
  readonly store: Pick<Store, 'sessionState' | 'secrets' | 'blobs'>;
  readonly ucan: TurnUcan;
  readonly llm: Llms;
  readonly emit: TurnEmit;
  readonly client: ClientCalls;
  readonly warn: TurnContext['warn'];
  readonly hooks: Hooks;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** What each plugin sees of one turn: the same facts, and of all that is kept only its own. */
export class TurnContexts {
  /** What plugins say the agent cannot do in this turn. */
  readonly degraded: DegradedService[] = [];
  readonly #parts: TurnContextsParts;
  readonly #contexts = new Map<string, TurnContext>();
  #shared: Shared = {};

  private constructor(parts: TurnContextsParts) {
    this.#parts = parts;
  }

  /** Asks the plugins, in their order, for what they share with the others. */
  static async open(
    parts: TurnContextsParts,
    plugins: readonly LoadedPlugin[],
  ): Promise<TurnContexts> {
    const contexts = new TurnContexts(parts);
    for (const plugin of plugins) await contexts.#gather(plugin);
    return contexts;
  }

  get state() {
    return stateOf(this.#parts.request, this.#shared);
  }

  /** Outside of any tool call. */
  of(plugin: LoadedPlugin): TurnContext {
    const known = this.#contexts.get(plugin.name);
    if (known) return known;
    const context = this.#make(plugin);
    this.#contexts.set(plugin.name, context);
    return context;
  }

  async #gather(plugin: LoadedPlugin): Promise<void> {
    const entries = Object.entries(plugin.shared);
    if (entries.length === 0) return;
    // Made for this alone: what comes later in the order is not there yet.
    const turn = this.#make(plugin);
    const values = await Promise.all(
      entries.map(async ([key, value]) => {
        if (typeof value !== 'function') return [[key, value] as const];
        const hook = `getSharedState: ${key}`;
        const call = { plugin: plugin.name, hook, signal: this.#parts.signal };
        const answer = await this.#parts.hooks.ask(call, (signal) => value({ ...turn, signal }));
        return 'ok' in answer ? [[key, answer.ok] as const] : [];
      }),
    );
    this.#shared = Object.freeze({ ...this.#shared, ...Object.fromEntries(values.flat()) });
  }

  #make({ name: plugin, config }: LoadedPlugin): TurnContext {
    const { facts, store, ucan, llm, emit, client, warn, logger, signal } = this.#parts;
    const { did: owner } = facts.user;
    const { id: sessionId, requestId } = facts.session;
    return {
      ...facts,
      state: this.state,
      config,
      ucan,
      sessionState: store.sessionState.of({ owner, sessionId, plugin }),
      secrets: store.secrets.of({ owner, plugin }),
      blobs: store.blobs.of({ owner, plugin }),
      llm,
      emit,
      client,
      shared: this.#shared,
      logger: logger.child({ plugin, requestId, sessionId }),
      warn,
      degrade: (name, missing) =>
        void this.degraded.push({ name: `${name}`, missing: `${missing}` }),
      signal,
      toolCallId: '',
    };
  }
}
