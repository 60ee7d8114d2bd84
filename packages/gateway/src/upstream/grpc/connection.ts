import { type ClientHttp2Session, connect, type SecureClientSessionOptions } from 'node:http2';
import type { SocketConstructorOpts } from 'node:net';
import { Backoff } from '../backoff.js';
import { GrpcCode, GrpcError } from '../grpc-error.js';
import { lostConnection } from './stream-status.js';

const CONNECT_TIMEOUT_MS = 5000;
const PING_TIMEOUT_MS = 5000;
const TCP_KEEP_ALIVE_MS = 30_000;
/** Room for large replies without waiting for the other side's permission to go on. */
const STREAM_WINDOW_BYTES = 4 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES = 32 * 1024 * 1024;

export interface ConnectionOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: string;
  /** Certificates to trust, in PEM; unset: those Node brings. */
  readonly ca?: readonly string[] | undefined;
}

/** One HTTP/2 connection to a node, made when it is needed and again when it is lost. */
export class Connection {
  private live: ClientHttp2Session | undefined;
  private opening: Promise<ClientHttp2Session> | undefined;
  private isClosed = false;
  private readonly backoff = new Backoff();

  constructor(private readonly options: ConnectionOptions) {}

  /** The session if one is open, without a tick of waiting. */
  get session(): ClientHttp2Session | undefined {
    return this.live && !this.live.closed && !this.live.destroyed ? this.live : undefined;
  }

  /** Opens a session, shared by all who wait; soon after a failed attempt it fails at once. */
  open(): Promise<ClientHttp2Session> {
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
    if (!session) return;
    const limit = setTimeout(() => session.destroy(), PING_TIMEOUT_MS).unref();
    session.ping(() => clearTimeout(limit));
  }

  close(): void {
    this.isClosed = true;
    this.live?.destroy();
  }

  private connect(): Promise<ClientHttp2Session> {
    return new Promise((resolve, reject) => {
      const session = connect(this.options.origin, this.sessionOptions());
      const fail = (cause?: Error) => {
        clearTimeout(limit);
        session.destroy();
        reject(this.backoff.failed(unreachable(cause)));
      };
      const limit = setTimeout(() => fail(new Error('no answer')), CONNECT_TIMEOUT_MS);
      session.once('error', fail).once('close', fail);
      session.once('remoteSettings', () => {
        clearTimeout(limit);
        session.off('close', fail);
        this.backoff.succeeded();
        if (this.isClosed) return fail();
        resolve(this.adopt(session));
      });
    });
  }

  /** What `connect` does not know it hands on to the socket. */
  private sessionOptions(): SecureClientSessionOptions & Partial<SocketConstructorOpts> {
    const { ca } = this.options;
    return {
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
      keepAlive: true,
      keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
      ...(ca && { ca: [...ca] }),
    };
  }

  private adopt(session: ClientHttp2Session): ClientHttp2Session {
    this.live = session;
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    // A node that goes away says so before; what runs ends there, what is new goes elsewhere.
    const retire = () => {
      if (this.live === session) this.live = undefined;
    };
    session.on('goaway', retire).on('close', retire).on('error', retire);
    return session;
  }
}

function unreachable(cause?: Error): GrpcError {
  const reason = cause ? `: ${cause.message}` : '';
  return new GrpcError(GrpcCode.unavailable, `the node cannot be reached${reason}`, 'transport');
}
