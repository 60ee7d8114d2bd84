import type { Logger } from '../context.js';
import type { PluginTurns } from '../turns.js';
import { type Inbox, MAX_ATTEMPTS, type PausedTurn, type Waiting } from './inbox.js';

/** Sessions of paused turns whose changes are noticed at once; the others are found in a round. */
const MAX_WATCHED = 10_000;
/** Messages that are answered at the same time; the others wait in the database. */
const MAX_RUNNING = 100;

interface InboxWorkerDeps<Message> {
  readonly inbox: Inbox<Message>;
  /** Answers a message; one that fails is tried again. */
  readonly answer: (waiting: Waiting<Message>) => Promise<void>;
  /** Names a message in the log. */
  readonly describe: (message: Message) => object;
  readonly logger: Logger;
  /** Only for messages that wait for paused turns. */
  readonly turns?: Pick<PluginTurns, 'findPaused' | 'onTurn'> | undefined;
}

/** Answers the messages of an inbox, a limited number at the same time. */
export class InboxWorker<Message> {
  private readonly running = new Set<Promise<void>>();
  /** Only their leases are renewed, so that a message that failed together with the database is taken over. */
  private readonly answering = new Set<Message>();
  /** Messages that wait for paused turns, by session, as far as this process knows them. */
  private readonly watched = new Map<string, Message>();
  /** Whether messages wait in the inbox because the limit was reached. */
  private hasMore = false;
  private isFirstRound = true;
  private isStopping = false;
  private readonly stopListening: (() => void) | undefined;

  constructor(private readonly deps: InboxWorkerDeps<Message>) {
    this.stopListening = deps.turns?.onTurn((turn) => {
      const message = this.watched.get(toSessionKey(turn));
      if (message !== undefined) this.track(this.checkNow(message));
    });
  }

  /** Starts to answer a message of the inbox, or leaves it there while the limit is reached. */
  start(waiting: Waiting<Message>, attempts = 1): void {
    const isFull = this.free <= 0;
    this.hasMore ||= isFull;
    this.track(isFull ? this.leave(waiting) : this.answerOrPostpone(waiting, attempts));
  }

  /** Stores a message that waits for a paused turn, unless it is stored already. It is answered once the turn continues or ends. */
  async follow(message: Message): Promise<void> {
    await this.deps.inbox.accept(message);
    this.watch(message);
    // The turn may have continued before it was watched.
    this.track(this.checkNow(message));
  }

  /** Answers messages that were postponed, or left by a process that died; call it every few seconds. */
  async runRound(): Promise<void> {
    const { inbox } = this.deps;
    await inbox.renew(this.answering);
    // What has happened while no process of this host ran is found at once.
    await this.continuePaused(this.isFirstRound ? 'all' : 'due');
    this.isFirstRound = false;
    await inbox.releaseDead();
    await this.takeOver();
    await inbox.deleteOld();
  }

  /** Starts no more answers; resolves once the running ones have ended. */
  async close(): Promise<void> {
    this.isStopping = true;
    this.stopListening?.();
    while (this.running.size > 0) await Promise.all(this.running);
  }

  /** Starts to answer unclaimed messages of the inbox, up to the limit. */
  private async takeOver(): Promise<void> {
    const free = this.free;
    if (free <= 0) return;
    const taken = await this.deps.inbox.takeOver(free);
    this.hasMore = taken.length === free;
    for (const { attempts, ...waiting } of taken)
      if (attempts <= MAX_ATTEMPTS) this.start(waiting, attempts);
      else await this.abandon(waiting.message);
  }

  /** Every process that has tried to answer it was killed, perhaps by it. */
  private async abandon(message: Message): Promise<void> {
    const { inbox, logger, describe } = this.deps;
    logger.error(
      describe(message),
      'a message is not answered: each host that tried to was killed',
    );
    await inbox.finish(message).catch((err) => this.reportWrite(err, message));
  }

  /** Answers messages whose turns do not wait for their users any more; forgets those that other processes answer. */
  private async continuePaused(which: 'all' | 'due' | readonly Message[]): Promise<void> {
    const { inbox, turns } = this.deps;
    if (!turns) return;
    const taken = await inbox.takePaused(which);
    const runs = taken.map(({ paused }) => paused);
    const waiting = runs.length > 0 ? await turns.findPaused(runs) : [];
    const waitingRuns = new Set(waiting.map(({ runId }) => runId));
    const isWaiting = ({ paused }: (typeof taken)[number]) => waitingRuns.has(paused.runId);
    const messages = taken.map(({ message }) => message);
    for (const message of typeof which === 'string' ? messages : which) this.forget(message);
    for (const { message } of taken.filter(isWaiting)) this.watch(message);
    const continued = taken.filter((each) => !isWaiting(each)).map(({ message }) => message);
    for (const claimed of await inbox.claimPaused(continued)) this.start(claimed);
  }

  private async checkNow(message: Message): Promise<void> {
    try {
      await this.continuePaused([message]);
    } catch (err) {
      // A later round finds it too.
      this.deps.logger.warn({ err }, 'cannot read waiting messages of the chat');
    }
  }

  private forget(message: Message): void {
    const { inbox } = this.deps;
    const paused = inbox.findPausedTurn(message);
    if (!paused) return;
    const key = toSessionKey(paused);
    const watched = this.watched.get(key);
    // The session may wait for another run meanwhile.
    if (watched && inbox.findPausedTurn(watched)?.runId === paused.runId) this.watched.delete(key);
  }

  private watch(message: Message): void {
    const paused = this.deps.inbox.findPausedTurn(message);
    if (paused) this.watched.set(toSessionKey(paused), message);
    const [oldest] = this.watched.size > MAX_WATCHED ? this.watched.keys() : [];
    if (oldest !== undefined) this.watched.delete(oldest);
  }

  /** How many more messages may be answered now. */
  private get free(): number {
    return this.isStopping ? 0 : MAX_RUNNING - this.running.size;
  }

  private track(work: Promise<void>): void {
    this.running.add(work);
    void work.finally(() => {
      this.running.delete(work);
      if (this.hasMore && this.free > 0) this.refill();
    });
  }

  private refill(): void {
    this.hasMore = false;
    this.takeOver().catch((err) => {
      // The next round tries again.
      this.deps.logger.warn({ err }, 'cannot read waiting messages of the chat');
    });
  }

  /** Another process, or this one later, can take it over immediately. */
  private async leave({ message }: Waiting<Message>): Promise<void> {
    await this.deps.inbox.release(message).catch((err) => this.reportWrite(err, message));
  }

  private async answerOrPostpone(waiting: Waiting<Message>, attempts: number): Promise<void> {
    const { inbox, logger, answer, describe } = this.deps;
    const { message } = waiting;
    this.answering.add(message);
    try {
      await answer(waiting);
      await inbox.finish(message);
    } catch (err) {
      logger.warn({ err, ...describe(message), attempts }, 'a message was not answered');
      // If this fails too, it can be taken over after its lease ends.
      await inbox.postpone(message, attempts).catch((error) => this.reportWrite(error, message));
    } finally {
      this.answering.delete(message);
    }
  }

  private reportWrite(err: unknown, message: Message): void {
    const { logger, describe } = this.deps;
    logger.error({ err, ...describe(message) }, 'cannot write to the inbox');
  }
}

const toSessionKey = ({ owner, sessionId }: Pick<PausedTurn, 'owner' | 'sessionId'>) =>
  JSON.stringify([owner, sessionId]);
