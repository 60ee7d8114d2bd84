import type { Socket } from 'node:net';
import { FrameWriter } from './frame-writer.js';
import { type FrameHead, FrameSplitter, numberIn, unpadded } from './frames.js';
import { type HeaderSection, HeaderSections } from './header-section.js';
import { openSocket, type PeerAddress } from './open-socket.js';
import { PeerSettings } from './peer-settings.js';
import {
  DEFAULT_MAX_FRAME,
  DEFAULT_WINDOW,
  ErrorCode,
  Flag,
  FrameType,
  MAX_WINDOW,
  ProtocolFault,
  Setting,
} from './protocol.js';
import { ReceiveWindow } from './receive-window.js';
import { type Cut, STREAM_WINDOW, Stream, type StreamListener } from './stream.js';

/** Room for large replies, on all streams together. */
const CONNECTION_WINDOW = 32 * 1024 * 1024;
const MAX_STREAM_ID = 0x7fffffff;
/** The other side never began with it, so it may be asked again. */
const REFUSED: Cut = { code: ErrorCode.refusedStream };

export interface SessionListener {
  /** The other side speaks HTTP/2: requests may begin. */
  onReady(): void;
  /** No request may begin here any more; what is under way goes on. */
  onRetired(): void;
  onClosed(cause: Error | undefined): void;
}

/** The client's side of an HTTP/2 connection (RFC 9113): many requests at a time on one socket. */
export class Session {
  private readonly streams = new Map<number, Stream>();
  /** Streams the other side has no room for yet. */
  private readonly waiting = new Set<Stream>();
  private readonly pings: (() => void)[] = [];
  private readonly socket: Socket;
  private readonly writer: FrameWriter;
  private readonly frames = new FrameSplitter(DEFAULT_MAX_FRAME, (head, payload) =>
    this.takeFrame(head, payload),
  );
  private readonly headers = new HeaderSections();
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
    this.socket = openSocket(peer, (bytes) => this.take(bytes));
    this.writer = new FrameWriter(this.socket);
    this.socket.on('error', (cause) => this.destroy(cause)).on('close', () => this.destroy());
    this.writer.settings({ [Setting.enablePush]: 0, [Setting.initialWindow]: STREAM_WINDOW });
    this.writer.allow(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
    this.writer.flush();
  }

  /** Whether a request may begin. */
  get isOpen(): boolean {
    return this.isReady && !this.isRetired && !this.isClosed;
  }

  /** Begins a request; its body goes to the stream. */
  request(headerBlock: Buffer, listener: StreamListener): Stream {
    const stream = new Stream(this, headerBlock, listener);
    this.waiting.add(stream);
    if (this.isOpen) this.beginWaiting();
    else queueMicrotask(() => this.cut(stream, REFUSED));
    return stream;
  }

  /** Asks for a sign of life. */
  ping(onAnswer: () => void): void {
    this.pings.push(onAnswer);
    this.writer.ping(Buffer.alloc(8), 0);
  }

  destroy(cause?: Error): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (cause instanceof ProtocolFault) this.writer.goAway(cause.code);
    this.socket.destroy();
    for (const stream of [...this.streams.values(), ...this.waiting]) this.cut(stream, { cause });
    this.listener.onClosed(cause);
  }

  sendData(stream: Stream, bytes: Buffer): number {
    let sent = 0;
    while (sent < bytes.length) {
      const room = Math.min(this.window, stream.window, this.peer.maxFrame);
      if (room <= 0) break;
      const piece = bytes.subarray(sent, sent + room);
      sent += piece.length;
      stream.window -= piece.length;
      this.window -= piece.length;
      const flags = stream.isEnding && sent === bytes.length ? Flag.endStream : 0;
      this.writer.send({ type: FrameType.data, flags, streamId: stream.id }, piece);
    }
    return sent;
  }

  cancel(stream: Stream): void {
    if (this.streams.has(stream.id)) this.writer.reset(stream.id, ErrorCode.cancel);
    this.forget(stream);
  }

  /** Opens as many streams as the other side has room for. */
  private beginWaiting(): void {
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

  private forget(stream: Stream): void {
    this.waiting.delete(stream);
    if (this.streams.delete(stream.id)) this.beginWaiting();
    if (this.isRetired && this.streams.size === 0) this.destroy();
  }

  private cut(stream: Stream, cut: Cut): void {
    this.forget(stream);
    stream.listener.onCut(cut);
  }

  private finish(stream: Stream): void {
    // Whoever heard the last of it may have cancelled it for that.
    if (!this.streams.has(stream.id)) return;
    if (!stream.isSent) this.writer.reset(stream.id, ErrorCode.cancel);
    this.forget(stream);
    stream.listener.onEnd();
  }

  private retire(): void {
    if (this.isRetired) return;
    this.isRetired = true;
    this.listener.onRetired();
    for (const stream of this.waiting) this.cut(stream, REFUSED);
    if (this.streams.size === 0) this.destroy();
  }

  /** Ends the connection if the other side breaks the rules. */
  private take(bytes: Buffer): void {
    try {
      if (!this.isClosed) this.frames.take(bytes);
    } catch (fault) {
      this.destroy(this.isReady ? (fault as Error) : new Error('it does not speak HTTP/2'));
    }
  }

  private takeFrame(head: FrameHead, payload: Buffer): void {
    this.headers.checkOrder(head);
    if (!this.isReady && head.type !== FrameType.settings) throw new ProtocolFault('no settings');
    switch (head.type) {
      case FrameType.data:
        this.takeData(head, payload);
        break;
      case FrameType.headers:
      case FrameType.continuation:
        this.takeHeaders(this.headers.take(head, payload));
        break;
      case FrameType.reset:
        this.takeReset(head, payload);
        break;
      case FrameType.settings:
        this.takeSettings(head, payload);
        break;
      case FrameType.ping:
        this.takePing(head, payload);
        break;
      case FrameType.goAway:
        this.takeGoAway(payload);
        break;
      case FrameType.windowUpdate:
        this.takeWindow(head, payload);
        break;
      case FrameType.pushPromise:
        throw new ProtocolFault('nothing may be pushed here');
    }
  }

  private takeData({ streamId, flags }: FrameHead, payload: Buffer): void {
    const again = this.received.take(payload.length);
    if (again > 0) this.writer.allow(0, again);
    const stream = this.streams.get(streamId);
    if (!stream) return;
    const isLast = (flags & Flag.endStream) !== 0;
    const more = stream.received.take(payload.length);
    if (more > 0 && !isLast) this.writer.allow(streamId, more);
    stream.listener.onData(unpadded(payload, flags));
    if (isLast) this.finish(stream);
  }

  private takeHeaders(section: HeaderSection | undefined): void {
    const stream = section && this.streams.get(section.streamId);
    if (!stream) return;
    stream.listener.onHeaders(section.fields);
    if (section.isLast) this.finish(stream);
  }

  private takeReset({ streamId }: FrameHead, payload: Buffer): void {
    const stream = this.streams.get(streamId);
    if (stream) this.cut(stream, { code: numberIn(payload) });
  }

  private takeSettings({ flags }: FrameHead, payload: Buffer): void {
    if ((flags & Flag.ack) !== 0) return;
    const windowBefore = this.peer.window;
    this.peer.take(payload);
    this.writer.settingsTaken();
    for (const stream of this.streams.values()) {
      stream.window += this.peer.window - windowBefore;
      stream.pump();
    }
    this.beginWaiting();
    if (this.isReady) return;
    this.isReady = true;
    this.listener.onReady();
  }

  private takePing({ flags }: FrameHead, payload: Buffer): void {
    if ((flags & Flag.ack) === 0) this.writer.ping(Buffer.from(payload), Flag.ack);
    else this.pings.shift()?.();
  }

  /** What the other side has not begun with by then, it never will. */
  private takeGoAway(payload: Buffer): void {
    const last = numberIn(payload) & MAX_STREAM_ID;
    this.retire();
    for (const stream of this.streams.values()) if (stream.id > last) this.cut(stream, REFUSED);
  }

  private takeWindow({ streamId }: FrameHead, payload: Buffer): void {
    const more = numberIn(payload) & MAX_WINDOW;
    const stream = this.streams.get(streamId);
    if (stream) stream.window += more;
    if (streamId === 0) this.window += more;
    if (Math.max(this.window, stream?.window ?? 0) > MAX_WINDOW) {
      throw new ProtocolFault('a window is too large', ErrorCode.flowControl);
    }
    for (const each of stream ? [stream] : this.streams.values()) each.pump();
  }
}
