import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { CallEvent, ClientCallResult, SessionKey } from './event-bus.js';
import type { HostBus, HostLiveness } from './host-bus.js';
import type { SharedCall, SocketDirectory, StoredCall } from './socket-presence.js';

const RETRY_MS = 500;

interface SharedCallsDeps {
  readonly directory: SocketDirectory;
  readonly bus: HostBus;
  readonly liveness: Pick<HostLiveness, 'onRegained'>;
  readonly logger: Pick<Logger, 'warn'>;
}

interface ForwardedAnswer {
  readonly key: SessionKey;
  /** The host of the turn. */
  readonly hostId: string;
  readonly answer: ClientCallResult;
  /** When that host no longer waits for it. */
  readonly deadline: number;
}

/** The calls to pages that are connected to another host than the one of the turn. */
export class SharedCalls {
  private readonly deps: SharedCallsDeps;
  /** The answers that the hosts of their turns may not have read yet. */
  private readonly forwarded = new Set<ForwardedAnswer>();

  constructor(deps: SharedCallsDeps) {
    this.deps = deps;
    // A crash of PostgreSQL removes them.
    deps.liveness.onRegained(() => {
      for (const answer of this.forwarded) void this.storeAnswer(answer);
    });
  }

  get hostId(): string {
    return this.deps.bus.hostId;
  }

  /** Resolves once the call is stored, or cannot be at the moment. */
  add(key: SessionKey, call: CallEvent): Promise<void> {
    return this.attempt(this.deps.directory.addCall(key, call));
  }

  /** A call of this host has ended; informs the hosts that may hold it for a page. */
  remove(key: SessionKey, toolCallId: string): void {
    const { owner, sessionId } = key;
    this.deps.bus.send('others', 'page-call-ended', { owner, sessionId, toolCallId });
    void this.attempt(this.deps.directory.removeCall(key, toolCallId));
  }

  markDelivered(key: SessionKey, callId: string): void {
    void this.attempt(this.deps.directory.markDelivered(key, callId));
  }

  /** Resolves once it is stored that a page at this host receives a call; false if a page at another host has received it. */
  async claimDelivery(key: SessionKey, callId: string): Promise<boolean> {
    const claiming = this.deps.directory.claimDelivery(key, callId);
    await this.attempt(claiming);
    // Two pages may receive a call; but one must.
    return claiming.catch(() => true);
  }

  list(key: SessionKey): Promise<readonly SharedCall[]> {
    return this.deps.directory.listCalls(key);
  }

  /** Whether a page at another host may receive a call, or has received it: it may have acted and left since then. */
  async mayReachPage(key: SessionKey, callId: string): Promise<boolean> {
    const hosts = await this.deps.directory.findHosts(key).catch(() => ['unknown']);
    if (hosts.length > 0) return true;
    return (await this.find(key, callId))?.isDelivered ?? true;
  }

  /** Stores an answer, and informs the host of the turn; tries again for as long as that may wait. */
  forward(
    key: SessionKey,
    hostId: string,
    answer: ClientCallResult,
    waitMs: number,
  ): Promise<void> {
    const forwarded = { key, hostId, answer, deadline: performance.now() + waitMs };
    this.forwarded.add(forwarded);
    setTimeout(() => this.forwarded.delete(forwarded), waitMs).unref();
    return this.storeAnswer(forwarded);
  }

  private async storeAnswer({ key, hostId, answer, deadline }: ForwardedAnswer): Promise<void> {
    const { directory, bus, logger } = this.deps;
    const { owner, sessionId } = key;
    const { toolCallId } = answer;
    for (; ; await sleep(RETRY_MS))
      try {
        const isFirst = await directory.answerCall(key, hostId, answer);
        if (isFirst) bus.send(hostId, 'page-answered', { owner, sessionId, toolCallId });
        return;
      } catch (err) {
        if (performance.now() < deadline) continue;
        logger.warn({ err }, 'the answer of a page was lost');
        return;
      }
  }

  /** Calls back when a page at another host may have answered. */
  onAnswered(listener: (key: SessionKey, callId: string) => void): void {
    this.deps.bus.on('page-answered', ({ owner, sessionId, toolCallId }) =>
      listener({ owner, sessionId }, toolCallId),
    );
  }

  /** Calls back when a call of another host has ended. */
  onEnded(listener: (key: SessionKey, callId: string) => void): void {
    this.deps.bus.on('page-call-ended', ({ owner, sessionId, toolCallId }) =>
      listener({ owner, sessionId }, toolCallId),
    );
  }

  /** What is stored of a call; undefined if it cannot be read. */
  async find(key: SessionKey, callId: string): Promise<StoredCall | undefined> {
    return this.deps.directory.findCall(key, callId).catch(() => undefined);
  }

  private async attempt(writing: Promise<unknown>): Promise<void> {
    await writing.catch((err) => this.deps.logger.warn({ err }, 'cannot share a call to a page'));
  }
}
