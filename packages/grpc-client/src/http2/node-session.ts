import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  OutgoingHttpHeaders,
} from 'node:http2';
import type { Socket } from 'node:net';
import { ErrorCode } from './protocol.js';
import {
  CONNECTION_WINDOW,
  type HeaderFields,
  type OpenSession,
  openSocket,
  type PeerAddress,
  type RequestHeaders,
  type Session,
  type SessionListener,
  STREAM_WINDOW,
  type Stream,
  type StreamError,
  type StreamListener,
} from './transport.js';

/** Limit on the fields of a response; `node:http2` resets the stream when it is exceeded. */
const MAX_HEADER_PAIRS = 512;
/** In megabytes: `node:http2` refuses new streams while buffers exceed it. */
const MAX_SESSION_MEMORY = 64;

/** Opens a session of `node:http2`. */
export const openNodeSession: OpenSession = (peer, listener) => new NodeSession(peer, listener);

class NodeSession implements Session {
  private readonly socket: Socket;
  private readonly session: ClientHttp2Session;
  private readonly streams = new Set<NodeStream>();
  private isReady = false;
  private isRetired = false;
  private isClosed = false;

  constructor(
    peer: PeerAddress,
    private readonly listener: SessionListener,
  ) {
    // Loaded on demand, since it slows down the start.
    const { connect } = process.getBuiltinModule('node:http2');
    this.socket = openSocket(peer);
    this.session = connect(peer.url.href.replace(/^\w+:/, `${peer.scheme}:`), {
      createConnection: () => this.socket,
      maxSessionMemory: MAX_SESSION_MEMORY,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW },
    });
    // Before the events of the session, which report a lost connection like a canceled stream.
    this.socket.prependListener('close', () => this.destroy());
    this.socket.prependListener('error', (cause) => this.destroy(cause));
    this.session.once('connect', () => this.session.setLocalWindowSize(CONNECTION_WINDOW));
    this.session.once('remoteSettings', () => {
      this.isReady = true;
      this.listener.onReady();
    });
    this.session.once('goaway', () => this.retire());
    this.session.on('error', (cause) => this.destroy(cause)).once('close', () => this.destroy());
  }

  get isOpen(): boolean {
    return this.isReady && !this.isRetired && !this.isClosed && !this.session.closed;
  }

  request(headers: RequestHeaders, listener: StreamListener): Stream {
    const stream = this.isOpen ? this.session.request(toObject(headers)) : undefined;
    return new NodeStream(stream, this.streams, listener);
  }

  ping(onAck: () => void): void {
    if (this.isClosed) return;
    this.session.ping((error) => {
      if (!error) onAck();
    });
  }

  destroy(cause?: Error): void {
    if (this.isClosed) return;
    this.isClosed = true;
    for (const stream of this.streams) stream.fail({ cause });
    this.session.destroy();
    this.socket.destroy();
    this.listener.onClosed(cause);
  }

  private retire(): void {
    if (this.isRetired || this.isClosed) return;
    this.isRetired = true;
    this.listener.onRetired();
  }
}

class NodeStream implements Stream {
  private isSettled = false;

  /** Without a stream, the request is refused. */
  constructor(
    private readonly stream: ClientHttp2Stream | undefined,
    private readonly streams: Set<NodeStream>,
    private readonly listener: StreamListener,
  ) {
    streams.add(this);
    if (!stream) {
      queueMicrotask(() => this.fail({ code: ErrorCode.refusedStream }));
      return;
    }
    stream.on('response', (headers) => this.report(headers));
    stream.on('trailers', (headers) => this.report(headers));
    stream.on('data', (bytes: Buffer) => {
      if (!this.isSettled) listener.onData(bytes);
    });
    stream.once('end', () => this.finish());
    // 'close' follows, and the code of the reset says more.
    stream.on('error', () => {});
    stream.once('close', () => this.fail({ code: readResetCode(stream) }));
  }

  write(bytes: Buffer): void {
    if (!this.isSettled) this.stream?.write(bytes);
  }

  end(bytes: Buffer): void {
    if (!this.isSettled) this.stream?.end(bytes);
  }

  cancel(): void {
    if (this.settle()) this.stream?.close(ErrorCode.cancel);
  }

  fail(error: StreamError): void {
    if (this.settle()) this.listener.onError(error);
  }

  private report(headers: IncomingHttpHeaders): void {
    if (!this.isSettled) this.listener.onHeaders(toFields(headers));
  }

  private finish(): void {
    // A reset also ends the readable side.
    if (this.stream?.rstCode) return;
    if (!this.settle()) return;
    if (!this.stream?.writableFinished) this.stream?.close(ErrorCode.cancel);
    this.listener.onEnd();
  }

  private settle(): boolean {
    if (this.isSettled) return false;
    this.isSettled = true;
    this.streams.delete(this);
    return true;
  }
}

/** A stream that the server never started has no code; it is safe to retry. */
function readResetCode({ rstCode = ErrorCode.none, pending }: ClientHttp2Stream): number {
  return pending ? ErrorCode.refusedStream : rstCode;
}

function toObject({ fixed, variable }: RequestHeaders): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = {};
  for (const fields of [fixed, variable])
    for (let i = 0; i < fields.length; i += 2) headers[fields[i] ?? ''] = fields[i + 1];
  return headers;
}

function toFields(headers: IncomingHttpHeaders): HeaderFields {
  const fields = Object.entries(headers).map(([name, value]): [string, string] => [
    name,
    Array.isArray(value) ? value.join(', ') : String(value),
  ]);
  return new Map(fields);
}
