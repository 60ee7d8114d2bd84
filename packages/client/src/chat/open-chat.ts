import type { ReplyPart, Run, SendMessage } from '@sibyl/protocol';
import { OracleClientError } from '../errors.js';
import type { ServerEvent, SessionEvents } from '../events/reconnecting-socket.js';
import { Listeners } from '../listeners.js';
import type { OracleClient } from '../oracle-client.js';
import { joinSignals, type StreamOptions, type StreamState } from '../turns/run-stream.js';
import { addPart, emptyTurn, type Turn } from '../turns/turn.js';
import type { MessageToSend } from '../turns/turns.js';
import { type Chat, type ChatState, History } from './chat.js';
import { ChatView } from './chat-view.js';
import {
  createFollowedTurn,
  createSentTurn,
  isOnPath,
  isOpen,
  isShown,
  type LiveTurn,
  LiveTurns,
} from './live-turns.js';

/** Opens a session: loads its newest messages and follows its turns, including those of other clients. */
export function openChat(client: OracleClient, sessionId: string): Chat {
  return new OpenChat(client, sessionId);
}

class OpenChat implements Chat {
  readonly #client: OracleClient;
  readonly #history: History;
  readonly #events: SessionEvents;
  readonly #tabs: OtherTabs;
  readonly #live = new LiveTurns();
  readonly #view = new ChatView();
  readonly #changes = new Listeners<void>();
  readonly #closing = new AbortController();
  /** Stops sending a message, by its `requestId`. */
  readonly #sending = new Map<string, AbortController>();
  #state: ChatState;
  #refreshing: Promise<void> | undefined;
  #isStale = false;
  #loading: 'loading' | 'loaded' | 'failed' = 'loading';
  /** The errors of the last load and the last turn. */
  readonly #errors: { loading?: OracleClientError; turn?: OracleClientError } = {};

  constructor(
    client: OracleClient,
    readonly sessionId: string,
  ) {
    this.#client = client;
    this.#history = new History(client, sessionId);
    this.#events = client.events(sessionId);
    this.#events.onAny((event) => this.#onEvent(event));
    this.#events.onState((state) => {
      // Events may have been missed while disconnected.
      if (state === 'connected' && this.#loading !== 'loading') void this.refresh();
      this.#changed();
    });
    this.#tabs = connectTabs(sessionId, () => void this.refresh());
    this.#state = this.#buildState();
    void this.refresh();
  }

  getState = (): ChatState => this.#state;

  subscribe = (listener: () => void): (() => void) => this.#changes.add(listener);

  send = async (message: MessageToSend): Promise<void> => {
    const body = typeof message === 'string' ? { message } : message;
    const { requestId = crypto.randomUUID(), regenerate }: Partial<SendMessage> = body;
    this.#clearErrors();
    // A path that begins elsewhere is shown when its turn begins.
    const isLater = this.#live.findRunning() && !this.#history.hasNewer && isNewPath(body);
    const questionId = this.#history.findQuestion(regenerate);
    if (!isLater) this.#history.makeRoom(body);
    this.#put({ ...createSentTurn(requestId, body), questionId });
    await this.#follow(requestId, (options) =>
      this.#client.stream(this.sessionId, { ...body, requestId }, options),
    );
    await this.#dropRejected(requestId);
  };

  edit = (messageId: string, text: string): Promise<void> => {
    const { parentId = null, attachments } = this.#history.find(messageId) ?? {};
    return this.send({ message: text, parentId, ...(attachments && { attachments }) });
  };

  regenerate = (messageId: string): Promise<void> => this.send({ regenerate: messageId });

  show = (messageId: string): Promise<void> =>
    this.#attempt('turn', async () => {
      await this.#client.sessions.activate(this.sessionId, messageId);
      await this.refresh();
    });

  discard = (requestId: string): void => {
    const isDiscarded = this.#live.discard(requestId);
    if (isDiscarded) this.#sending.get(requestId)?.abort();
    this.#clearErrors();
    this.#changed();
    if (isDiscarded && this.#history.hasHidden) void this.#showHidden();
  };

  withdraw = async (requestId: string): Promise<boolean> => {
    const isWithdrawn = await this.#attempt('turn', async () => {
      const runId = await this.#waitForRun(requestId);
      if (runId) await this.#client.runs.withdraw(runId);
      return runId !== undefined;
    });
    return isWithdrawn ?? false;
  };

  abort = async (): Promise<boolean> =>
    (await this.#attempt('turn', () => this.#client.abort(this.sessionId))) ?? false;

  loadOlder = (): Promise<void> =>
    this.#attempt('loading', () => this.#history.loadOlder(this.#closing.signal));

  loadNewer = (): Promise<void> =>
    this.#attempt('loading', () => this.#history.loadNewer(this.#closing.signal));

  showNewest = (): Promise<void> =>
    this.#attempt('loading', () => this.#history.showNewest(this.#closing.signal));

  reveal = async (messageId: string): Promise<boolean> => {
    await this.#refreshing;
    await this.#attempt('loading', async () => {
      if (this.#history.find(messageId)) return;
      const { signal } = this.#closing;
      if (await this.#history.loadAround(messageId, signal)) return;
      await this.#client.sessions.activate(this.sessionId, messageId);
      await this.#history.loadAround(messageId, signal);
    });
    return this.#history.find(messageId) !== undefined;
  };

  /** A call during a refresh waits for one more round. */
  refresh = (): Promise<void> => {
    this.#isStale = true;
    this.#refreshing ??= this.#refreshWhileStale();
    return this.#refreshing;
  };

  close = (): void => {
    this.#closing.abort();
    this.#tabs.close();
    this.#events.close();
  };

  async #refreshWhileStale(): Promise<void> {
    try {
      while (this.#isStale && !this.#closing.signal.aborted) {
        this.#isStale = false;
        await this.#attempt('loading', () => this.#load());
        if (this.#errors.loading && this.#loading === 'loading') this.#loading = 'failed';
        this.#changed();
      }
    } finally {
      // In the same step as the loop ends: a refresh requested between the two would be lost.
      this.#refreshing = undefined;
    }
  }

  async #load(): Promise<void> {
    const { signal } = this.#closing;
    const answered = this.#live.listAnswered();
    const running = this.#live.findRunning();
    let [run, isRead] = await Promise.all([
      this.#client.runs.current(this.sessionId, { signal }),
      this.#readHistory(),
    ]);
    const isNew = run !== null && !this.#live.get(run.requestId);
    // The history may be older than the turn.
    if (isNew && isActive(run) && !this.#history.hasTurn(run.requestId))
      isRead = await this.#readHistory();
    this.#loading = 'loaded';
    this.#live.dropStored(this.#history.messages, answered);
    this.#join(run);
    if (!isRead || this.#history.hasNewer) return;
    if (running) this.#live.place(running.requestId, this.#history.messages);
    if (isNew) this.#live.place(run.requestId, this.#history.messages);
  }

  /** Returns false if the path of a turn that waits was not read: that of the turn before it is shown until it ends. */
  #readHistory(): Promise<boolean> {
    return this.#history.refresh(this.#closing.signal, (path) => {
      const running = this.#live.findRunning();
      const isQueued = path.at(-1)?.type === 'human';
      const isKept = running && isShown(running, this.#history.messages);
      return !isKept || !isQueued || isOnPath(running, path);
    });
  }

  /** Follows the active turn if it is not followed yet. */
  #join(run: Run | null): void {
    if (!run || !isActive(run)) return;
    const { requestId, runId, questionId } = run;
    const known = this.#live.get(requestId);
    // After a pause, a turn continues as another run.
    const isOther = known?.phase === 'ended' && known.turn.runId !== runId;
    if (known && known.phase !== 'lost' && !isOther) return;
    delete this.#errors.turn;
    const { isStored: _, error: __, ...rest } = known ?? {};
    const earlier = isOther ? known?.turn : this.#findStoredTurn(requestId);
    this.#live.putRunning({
      ...rest,
      ...createFollowedTurn(requestId),
      questionId,
      ...(earlier && { turn: { ...earlier, status: 'running' } }),
    });
    this.#changed();
    void this.#follow(requestId, (options) => this.#client.runs.join(runId, options));
  }

  /** What the history has of an answer that is continued. */
  #findStoredTurn(requestId: string): Turn | undefined {
    const answer = this.#state.messages.find(
      (message) => message.type === 'ai' && message.requestId === requestId,
    );
    if (!answer?.messageId) return undefined;
    const { content: text, reasoning, calls, components, parts, messageId: runId } = answer;
    return { ...emptyTurn, ...{ runId, text, reasoning, calls, components, parts } };
  }

  /** Nothing remains of a turn without a question that the server has not accepted: the old answer is shown again. */
  async #dropRejected(requestId: string): Promise<void> {
    const { phase, question } = this.#live.get(requestId) ?? {};
    if (phase !== 'lost' || question) return;
    if (this.#live.discard(requestId)) await this.#showHidden();
  }

  /** Shows the messages that a turn has hidden, also while the server cannot be reached. */
  async #showHidden(): Promise<void> {
    await this.refresh();
    this.#history.showHidden();
    this.#changed();
  }

  /** Waits until the server has accepted a message. */
  async #waitForRun(requestId: string): Promise<string | undefined> {
    for (;;) {
      const live = this.#live.get(requestId);
      if (!live || !isOpen(live) || live.turn.runId) return live?.turn.runId;
      await new Promise<void>((resolve) => {
        const stop = this.#changes.add(() => {
          stop();
          resolve();
        });
      });
    }
  }

  async #follow(
    requestId: string,
    open: (options: StreamOptions) => AsyncIterable<ReplyPart>,
  ): Promise<void> {
    const change = (changed: (live: LiveTurn) => Partial<LiveTurn>) => {
      const live = this.#live.get(requestId);
      if (live) this.#put({ ...live, ...changed(live) });
    };
    const onState = (state: StreamState) =>
      change(() => ({ phase: state === 'live' ? 'open' : 'rejoining' }));
    await this.#attempt('turn', async () => {
      const isRead = await this.#readParts(
        requestId,
        (signal) => open({ signal, onState }),
        change,
      );
      if (!isRead) return;
      change(() => ({ phase: 'ended' }));
      this.#live.dropWithdrawn(requestId);
      await this.refresh();
    });
    // No retry here, which could loop forever; the next event triggers a refresh.
    const { turn: error } = this.#errors;
    change(({ phase }) => (phase === 'ended' ? {} : { phase: 'lost', ...(error && { error }) }));
  }

  /** Returns false if the message was discarded before the server accepted it. */
  async #readParts(
    requestId: string,
    open: (signal: AbortSignal) => AsyncIterable<ReplyPart>,
    change: (changed: (live: LiveTurn) => Partial<LiveTurn>) => void,
  ): Promise<boolean> {
    const sending = new AbortController();
    this.#sending.set(requestId, sending);
    try {
      for await (const part of open(joinSignals(this.#closing.signal, sending.signal))) {
        change(({ turn }) => ({ turn: addPart(turn, part) }));
        if (part.event === 'run' && this.#live.get(requestId)?.isSent) this.#tabs.notify();
      }
      return true;
    } catch (error) {
      if (sending.signal.aborted) return false;
      throw error;
    } finally {
      if (this.#sending.get(requestId) === sending) this.#sending.delete(requestId);
    }
  }

  /** Refreshes on events of turns that are not followed, and on changed messages. */
  #onEvent({ name, payload }: ServerEvent): void {
    const { requestId } = payload as { readonly requestId?: string };
    const live = requestId === undefined ? undefined : this.#live.get(requestId);
    const isNew = live ? name === 'message_cache_invalidation' && !isOpen(live) : requestId;
    if (isNew) void this.refresh();
  }

  /** Keeps only the reason why the history was never loaded. */
  #clearErrors(): void {
    delete this.#errors.turn;
    if (this.#loading === 'loaded') delete this.#errors.loading;
  }

  #put(live: LiveTurn): void {
    this.#live.put(live);
    this.#changed();
  }

  /** Runs work and returns its result; stores its error for the state. */
  async #attempt<T>(what: 'loading' | 'turn', work: () => Promise<T>): Promise<T | undefined> {
    const before = this.#errors[what];
    try {
      const result = await work();
      // Meanwhile another command may have failed.
      if (this.#errors[what] === before) delete this.#errors[what];
      return result;
    } catch (error) {
      if (this.#closing.signal.aborted) return undefined;
      if (!(error instanceof OracleClientError)) throw error;
      this.#errors[what] = error;
      return undefined;
    } finally {
      this.#changed();
    }
  }

  #buildState(): ChatState {
    const { turn, loading } = this.#errors;
    return this.#view.build({
      history: this.#history,
      live: this.#live.list(),
      loading: this.#loading,
      error: isGone(loading) ? loading : (turn ?? loading),
      connection: this.#events.state,
    });
  }

  #changed(): void {
    this.#state = this.#buildState();
    this.#changes.notify();
  }
}

/** Whether the session was deleted: no other error matters then. */
const isGone = (error: OracleClientError | undefined) => error?.code === 'session_not_found';

const isActive = ({ status }: Run): boolean => status === 'queued' || status === 'running';

/** Whether a message is an edit or asks for another answer. */
const isNewPath = ({ parentId, regenerate }: Partial<SendMessage>): boolean =>
  parentId !== undefined || regenerate !== undefined;

/** Other tabs of this browser with the same session. */
interface OtherTabs {
  /** Announces that a turn has started in this tab. */
  notify(): void;
  close(): void;
}

/** Calls `onTurn` when another tab starts a turn in the session. */
function connectTabs(sessionId: string, onTurn: () => void): OtherTabs {
  const channel = openChannel(`sibyl:${sessionId}`);
  if (!channel) return { notify: () => undefined, close: () => undefined };
  channel.onmessage = onTurn;
  // Node only: the channel must not keep the process alive.
  (channel as { unref?: () => void }).unref?.();
  return { notify: () => channel.postMessage('turn'), close: () => channel.close() };
}

/** Undefined where there is none, and in Firefox if it blocks the storage of the site. */
function openChannel(name: string): BroadcastChannel | undefined {
  try {
    return new BroadcastChannel(name);
  } catch {
    return undefined;
  }
}
