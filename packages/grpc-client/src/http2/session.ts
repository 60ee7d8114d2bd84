import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import {
  type FrameHead,
  FrameReader,
  FrameWriter,
  type HeaderSection,
  HeaderSectionReader,
  readUint32,
  removePadding,
} from './frames.js';
import { encodeHeaders } from './hpack.js';
import {
  DEFAULT_MAX_FRAME,
  DEFAULT_WINDOW,
  ErrorCode,
  Flag,
  FrameType,
  MAX_WINDOW,
  PeerSettings,
  ProtocolError,
  Setting,
} from './protocol.js';
import { OwnStream, ReceiveWindow } from './stream.js';
import {
  CONNECTION_WINDOW,
  notHttp2,
  type OpenSession,
  openSocket,
  type PeerAddress,
  type RequestHeaders,
  type Session,
  type SessionListener,
  STREAM_WINDOW,
  type StreamError,
  type StreamListener,
} from './transport.js';

const MAX_STREAM_ID = 0x7fffffff;
const PING_BYTES = 8;
/** The peer did not process the request, so it is safe to retry. */
const REFUSED: StreamError = { code: ErrorCode.refusedStream };

/** Opens a session of this package's own HTTP/2 client (RFC 9113). */
export const openOwnSession: OpenSession = (peer, listener) => new OwnSession(peer, listener);

export class OwnSession implements Session {
  private readonly streams = new Map<number, OwnStream>();
  /** Streams beyond the peer's limit on concurrent streams. */
  private readonly waiting = new Set<OwnStream>();
  /** By payload, in hex. */
  private readonly pings = new Map<string, () => void>();
  private readonly socket: Socket;
  private readonly writer: FrameWriter;
  private readonly frames = new FrameReader(DEFAULT_MAX_FRAME, (head, payload) =>
    this.handleFrame(head, payload),
  );
  private readonly headers = new HeaderSectionReader();
  private readonly peer = new PeerSettings();
  private nextId = 1;
  private window = DEFAULT_WINDOW;
  private readonly received = new ReceiveWindow(CONNECTION_WINDOW);
  private isReady = false;
  private isRetired = false;
  private isClosed = false;

  constructor(
    peer: PeerAddress,
    private readonly listener: SessionListener,
  ) {
    this.socket = openSocket(peer, (bytes) => this.receive(bytes));
    this.writer = new FrameWriter(this.socket);
    this.socket.on('error', (cause) => this.destroy(cause)).on('close', () => this.destroy());
    this.writer.settings({ [Setting.enablePush]: 0, [Setting.initialWindow]: STREAM_WINDOW });
    this.writer.extendWindow(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
    this.writer.flush();
  }

  get isOpen(): boolean {
    return this.isReady && !this.isRetired && !this.isClosed;
  }

  request({ fixed, variable }: RequestHeaders, listener: StreamListener): OwnStream {
    const shared = encodeFixed(fixed);
    const block = variable.length === 0 ? shared : Buffer.concat([shared, encodeHeaders(variable)]);
    const stream = new OwnStream(this, block, listener);
    this.waiting.add(stream);
    if (this.isOpen) this.openWaiting();
    else queueMicrotask(() => this.fail(stream, REFUSED));
    return stream;
  }

  /** Random, so that only a peer that reads can acknowledge it. */
  ping(onAck: () => void): void {
    const payload = randomBytes(PING_BYTES);
    this.pings.set(payload.toString('hex'), onAck);
    this.writer.ping(payload);
  }

  destroy(cause?: Error): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (cause instanceof ProtocolError) this.writer.goAway(cause.code);
    this.socket.destroy();
    for (const stream of [...this.streams.values(), ...this.waiting]) this.fail(stream, { cause });
    this.listener.onClosed(cause);
  }

  sendData(stream: OwnStream, bytes: Buffer): number {
    let sent = 0;
    while (sent < bytes.length) {
      const room = Math.min(this.window, stream.window, this.peer.maxFrame);
      if (room <= 0) break;
      const chunk = bytes.subarray(sent, sent + room);
      sent += chunk.length;
      stream.window -= chunk.length;
      this.window -= chunk.length;
      const flags = stream.isEnding && sent === bytes.length ? Flag.endStream : 0;
      this.writer.send({ type: FrameType.data, flags, streamId: stream.id }, chunk);
    }
    return sent;
  }

  cancel(stream: OwnStream): void {
    if (this.streams.has(stream.id)) this.writer.reset(stream.id, ErrorCode.cancel);
    this.remove(stream);
  }

  /** Opens as many streams as the peer allows at a time. */
  private openWaiting(): void {
    for (const stream of this.waiting) {
      if (!this.isOpen || this.streams.size >= this.peer.maxStreams) return;
      this.waiting.delete(stream);
      stream.id = this.nextId;
      stream.window = this.peer.window;
      this.streams.set(stream.id, stream);
      this.writer.headers(stream.id, stream.headerBlock, this.peer.maxFrame);
      stream.pump();
      this.nextId += 2;
      if (this.nextId > MAX_STREAM_ID) this.retire();
    }
  }

  private remove(stream: OwnStream): void {
    this.waiting.delete(stream);
    if (this.streams.delete(stream.id)) this.openWaiting();
    if (this.isRetired && this.streams.size === 0) this.destroy();
  }

  private fail(stream: OwnStream, error: StreamError): void {
    this.remove(stream);
    stream.listener.onError(error);
  }

  private finish(stream: OwnStream): void {
    // The listener may have canceled the stream while it handled the last frame.
    if (!this.streams.has(stream.id)) return;
    if (!stream.isSent) this.writer.reset(stream.id, ErrorCode.cancel);
    this.remove(stream);
    stream.listener.onEnd();
  }

  private retire(): void {
    if (this.isRetired) return;
    this.isRetired = true;
    this.listener.onRetired();
    for (const stream of this.waiting) this.fail(stream, REFUSED);
    if (this.streams.size === 0) this.destroy();
  }

  /** Closes the connection if the peer violates the protocol. */
  private receive(bytes: Buffer): void {
    try {
      if (!this.isClosed) this.frames.read(bytes);
    } catch (error) {
      this.destroy(this.isReady ? (error as Error) : notHttp2());
    }
  }

  private handleFrame(head: FrameHead, payload: Buffer): void {
    this.headers.checkOrder(head);
    if (!this.isReady && head.type !== FrameType.settings) throw new ProtocolError('no settings');
    switch (head.type) {
      case FrameType.data:
        this.handleData(head, payload);
        break;
      case FrameType.headers:
      case FrameType.continuation:
        this.handleHeaders(this.headers.read(head, payload));
        break;
      case FrameType.reset:
        this.handleReset(head, payload);
        break;
      case FrameType.settings:
        this.handleSettings(head, payload);
        break;
      case FrameType.ping:
        this.handlePing(head, payload);
        break;
      case FrameType.goAway:
        this.handleGoAway(payload);
        break;
      case FrameType.windowUpdate:
        this.handleWindowUpdate(head, payload);
        break;
      case FrameType.pushPromise:
        throw new ProtocolError('the peer must not push');
    }
  }

  private handleData({ streamId, flags }: FrameHead, payload: Buffer): void {
    const extension = this.received.take(payload.length);
    if (extension > 0) this.writer.extendWindow(0, extension);
    const stream = this.streams.get(streamId);
    if (!stream) return;
    const isLast = (flags & Flag.endStream) !== 0;
    const streamExtension = stream.received.take(payload.length);
    if (streamExtension > 0 && !isLast) this.writer.extendWindow(streamId, streamExtension);
    stream.listener.onData(removePadding(payload, flags));
    if (isLast) this.finish(stream);
  }

  private handleHeaders(section: HeaderSection | undefined): void {
    const stream = section && this.streams.get(section.streamId);
    if (!stream) return;
    stream.listener.onHeaders(section.fields);
    if (section.isLast) this.finish(stream);
  }

  private handleReset({ streamId }: FrameHead, payload: Buffer): void {
    const stream = this.streams.get(streamId);
    if (stream) this.fail(stream, { code: readUint32(payload) });
  }

  private handleSettings({ flags }: FrameHead, payload: Buffer): void {
    if ((flags & Flag.ack) !== 0) return;
    const windowBefore = this.peer.window;
    this.peer.update(payload);
    this.writer.ackSettings();
    for (const stream of this.streams.values()) {
      stream.window += this.peer.window - windowBefore;
      stream.pump();
    }
    this.openWaiting();
    if (this.isReady) return;
    this.isReady = true;
    this.listener.onReady();
  }

  private handlePing({ flags }: FrameHead, payload: Buffer): void {
    if (payload.length !== PING_BYTES)
      throw new ProtocolError('a ping has the wrong size', ErrorCode.frameSize);
    if ((flags & Flag.ack) === 0) this.writer.ackPing(payload);
    else this.handlePingAck(payload.toString('hex'));
  }

  private handlePingAck(payload: string): void {
    const onAck = this.pings.get(payload);
    this.pings.delete(payload);
    onAck?.();
  }

  /** The peer will not process streams above the last id it names. */
  private handleGoAway(payload: Buffer): void {
    const last = readUint32(payload) & MAX_STREAM_ID;
    this.retire();
    for (const stream of this.streams.values()) if (stream.id > last) this.fail(stream, REFUSED);
  }

  private handleWindowUpdate({ streamId }: FrameHead, payload: Buffer): void {
    const extension = readUint32(payload) & MAX_WINDOW;
    const stream = this.streams.get(streamId);
    if (stream) stream.window += extension;
    if (streamId === 0) this.window += extension;
    if (Math.max(this.window, stream?.window ?? 0) > MAX_WINDOW) {
      throw new ProtocolError('a window is too large', ErrorCode.flowControl);
    }
    for (const each of stream ? [stream] : this.streams.values()) each.pump();
  }
}

/** The arrays live as long as the client that sends them. */
const encodedHeaders = new WeakMap<readonly string[], Buffer>();

function encodeFixed(fields: readonly string[]): Buffer {
  const known = encodedHeaders.get(fields);
  if (known) return known;
  const encoded = encodeHeaders(fields);
  encodedHeaders.set(fields, encoded);
  return encoded;
}
