import { Backoff } from '../backoff.js';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import type { PeerAddress } from '../http2/open-socket.js';
import { Session } from '../http2/session.js';
import { lostConnection } from './stream-status.js';

const CONNECT_TIMEOUT_MS = 5000;
const PING_TIMEOUT_MS = 5000;
const PROBE_INTERVAL_MS = 10_000;

/** One HTTP/2 connection to a node, made when it is needed and again when it is lost. */
export class Connection {
  private live: Session | undefined;
  private opening: Promise<Session> | undefined;
  private isClosed = false;
  private nextProbeAt = 0;
  private readonly backoff = new Backoff();

  constructor(private readonly peer: PeerAddress) {}

  /** The session if one is open, without a tick of waiting. */
  get session(): Session | undefined {
    return this.live?.isOpen ? this.live : undefined;
  }

  /** Opens a session, shared by all who wait; soon after a failed attempt it fails at once. */
  open(): Promise<Session> {
    if (this.isClosed) return Promise.reject(lostConnection());
    if (this.session) return Promise.resolve(this.session);
    const fault = this.backoff.lastFault();
    if (!this.opening && fault) return Promise.reject(fault);
    this.opening ??= this.connect().finally(() => {
      this.opening = undefined;
    });
    return this.opening;
  }

  /** Asks for a sign of life, and hangs up if none comes: a dead peer says nothing by itself. */
  probe(): void {
    const session = this.session;
    const now = performance.now();
    // Many queries may be late at once, and a server hangs up on those who ping too often.
    if (!session || now < this.nextProbeAt) return;
    this.nextProbeAt = now + PROBE_INTERVAL_MS;
    const limit = setTimeout(() => session.destroy(), PING_TIMEOUT_MS).unref();
    session.ping(() => clearTimeout(limit));
  }

  close(): void {
    this.isClosed = true;
    this.live?.destroy();
  }

  private connect(): Promise<Session> {
    const { promise, resolve, reject } = Promise.withResolvers<Session>();
    let hasBegun = false;
    const session = new Session(this.peer, {
      onReady: () => {
        hasBegun = true;
        clearTimeout(limit);
        this.backoff.succeeded();
        if (this.isClosed) return session.destroy();
        this.live = session;
        this.nextProbeAt = 0;
        resolve(session);
      },
      // What runs there goes on; what is new goes elsewhere.
      onRetired: () => this.retire(session),
      onClosed: (cause) => {
        clearTimeout(limit);
        this.retire(session);
        reject(hasBegun ? lostConnection() : this.backoff.failed(unreachable(cause)));
      },
    });
    const limit = setTimeout(() => session.destroy(new Error('no answer')), CONNECT_TIMEOUT_MS);
    return promise;
  }

  private retire(session: Session): void {
    if (this.live === session) this.live = undefined;
  }
}

function unreachable(cause?: Error): GrpcError {
  const text = 'the node cannot be reached';
  const detail = cause && `${text}: ${cause.message}`;
  return new GrpcError(GrpcCode.unavailable, text, 'transport', detail);
}
