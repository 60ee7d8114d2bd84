import type { Logger } from 'pino';
import type { CallEvent, ClientCallResult, SessionKey } from './event-bus.js';
import type { HostBus } from './host-bus.js';
import type { SharedCall, SocketDirectory } from './socket-presence.js';

interface SharedCallsDeps {
  readonly directory: SocketDirectory;
  readonly bus: HostBus;
  readonly logger: Pick<Logger, 'warn'>;
}

/** The calls to pages that are connected to another host than the one of the turn. */
export class SharedCalls {
  private readonly deps: SharedCallsDeps;

  constructor(deps: SharedCallsDeps) {
    this.deps = deps;
  }

  get hostId(): string {
    return this.deps.bus.hostId;
  }

  /** Resolves once the call is stored, or cannot be. */
  add(key: SessionKey, call: CallEvent): Promise<void> {
    return this.attempt(this.deps.directory.addCall(key, call));
  }

  remove(key: SessionKey, callId: string): void {
    void this.attempt(this.deps.directory.removeCall(key, callId));
  }

  markDelivered(key: SessionKey, callId: string): void {
    void this.attempt(this.deps.directory.markDelivered(key, callId));
  }

  list(key: SessionKey): Promise<readonly SharedCall[]> {
    return this.deps.directory.listCalls(key);
  }

  /** Whether a page may be connected to another host. */
  async hasPagesElsewhere(key: SessionKey): Promise<boolean> {
    const hosts = await this.deps.directory.findHosts(key).catch(() => ['unknown']);
    return hosts.length > 0;
  }

  /** Stores an answer, and informs the host of the turn. */
  forward(key: SessionKey, hostId: string, answer: ClientCallResult): void {
    const { directory, bus } = this.deps;
    const { owner, sessionId } = key;
    const storing = directory.answerCall(key, hostId, answer).then((isFirst) => {
      const { toolCallId } = answer;
      if (isFirst) bus.send(hostId, 'page-answered', { owner, sessionId, toolCallId });
    });
    void this.attempt(storing);
  }

  /** Calls back when a page at another host may have answered. */
  onAnswered(listener: (key: SessionKey, callId: string) => void): void {
    this.deps.bus.on('page-answered', ({ owner, sessionId, toolCallId }) =>
      listener({ owner, sessionId }, toolCallId),
    );
  }

  findAnswer(key: SessionKey, callId: string): Promise<ClientCallResult | undefined> {
    return this.deps.directory.findAnswer(key, callId).catch(() => undefined);
  }

  private async attempt(writing: Promise<unknown>): Promise<void> {
    await writing.catch((err) => this.deps.logger.warn({ err }, 'cannot share a call to a page'));
  }
}
