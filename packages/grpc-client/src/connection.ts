import { type CancelSignal, canceled } from './calls.js';
import { connectionLost, GrpcCode, GrpcError } from './grpc-error.js';
import type { OpenSession, PeerAddress, Session } from './http2/transport.js';

const CONNECT_TIMEOUT_MS = 5000;
const PING_TIMEOUT_MS = 5000;
const PROBE_INTERVAL_MS = 10_000;

/** One HTTP/2 connection, opened on demand and reopened after a failure. */
export class Connection {
  private live: Session | undefined;
  private opening: Promise<Session> | undefined;
  private isClosed = false;
  private nextProbeAt = 0;
  private readonly backoff = new Backoff();

  constructor(
    private readonly peer: PeerAddress,
    private readonly openSession: OpenSession,
    private readonly onConnected: () => void = () => {},
  ) {}

  /** The current session, if one is open. */
  get session(): Session | undefined {
    return this.live?.isOpen ? this.live : undefined;
  }

  /** Opens a session for all concurrent callers; rejects at once shortly after a failed attempt. */
  open(): Promise<Session> {
    if (this.isClosed) return Promise.reject(connectionLost());
    if (this.session) return Promise.resolve(this.session);
    const error = this.backoff.lastError();
    if (!this.opening && error) return Promise.reject(error);
    this.opening ??= this.connect().finally(() => {
      this.opening = undefined;
    });
    return this.opening;
  }

  /** Like `open`, for a call with a timeout that may be canceled: the attempt continues for others. */
  async openWithin(timeoutMs: number, signal?: CancelSignal): Promise<Session> {
    if (signal?.aborted) throw canceled();
    const { promise: gaveUp, reject } = Promise.withResolvers<never>();
    const cancel = () => reject(canceled());
    const expire = () => reject(unreachable(new Error('no answer in time')));
    const timer = setTimeout(expire, timeoutMs);
    signal?.addEventListener('abort', cancel);
    try {
      return await Promise.race([this.open(), gaveUp]);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cancel);
    }
  }

  /** Pings the peer and closes the connection if it does not answer: a dead peer sends nothing by itself. */
  probe(): void {
    const session = this.session;
    const now = performance.now();
    // Many calls may time out at once, and servers close connections that ping too often.
    if (!session || now < this.nextProbeAt) return;
    this.nextProbeAt = now + PROBE_INTERVAL_MS;
    const timer = setTimeout(() => session.destroy(), PING_TIMEOUT_MS).unref();
    session.ping(() => clearTimeout(timer));
  }

  close(): void {
    this.isClosed = true;
    this.live?.destroy();
  }

  private connect(): Promise<Session> {
    const { promise, resolve, reject } = Promise.withResolvers<Session>();
    let isReady = false;
    const session = this.openSession(this.peer, {
      onReady: () => {
        isReady = true;
        clearTimeout(timer);
        this.backoff.succeeded();
        if (this.isClosed) return session.destroy();
        this.live = session;
        this.nextProbeAt = 0;
        this.onConnected();
        resolve(session);
      },
      // Running calls continue there; new ones use another session.
      onRetired: () => this.retire(session),
      onClosed: (cause) => {
        clearTimeout(timer);
        this.retire(session);
        reject(isReady ? connectionLost() : this.backoff.failed(unreachable(cause)));
      },
    });
    const timer = setTimeout(() => session.destroy(new Error('no answer')), CONNECT_TIMEOUT_MS);
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

const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5000;

/** Exponential backoff between attempts to reach a server. */
export class Backoff {
  private failures = 0;
  private error: GrpcError | undefined;
  private retryAt = 0;

  /** The error of the last attempt, while it is too early for the next one. */
  lastError(): GrpcError | undefined {
    return performance.now() < this.retryAt ? this.error : undefined;
  }

  failed(error: GrpcError): GrpcError {
    const waitMs = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.failures);
    this.failures += 1;
    this.error = error;
    // Jitter, so that several clients do not reconnect at the same time.
    this.retryAt = performance.now() + waitMs * (0.5 + Math.random() / 2);
    return error;
  }

  succeeded(): void {
    this.failures = 0;
    this.error = undefined;
    this.retryAt = 0;
  }
}
