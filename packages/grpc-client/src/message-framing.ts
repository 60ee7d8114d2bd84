import { GrpcCode, GrpcError } from './grpc-error.js';

/** Compression flag and length, before every message. */
const PREFIX_BYTES = 5;

/** Adds the gRPC prefix to a message. */
export function encodeMessage(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, PREFIX_BYTES);
  return frame;
}

/** Assembles messages from the chunks of a stream. It copies, so a chunk may be overwritten afterwards. */
export class MessageReader {
  /** Of a message whose prefix arrives in parts. */
  private prefix: Buffer | undefined;
  private prefixBytes = 0;
  private message: Buffer | undefined;
  private messageBytes = 0;

  constructor(
    private readonly maxBytes: number,
    private readonly reserved?: ReplyReservation,
  ) {}

  /** Returns the messages that the chunk completes. Throws a `GrpcError` for compressed or too large ones. */
  read(chunk: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    let at = 0;
    while (at < chunk.length) {
      at += this.message ? this.fill(this.message, chunk, at) : this.readPrefix(chunk, at);
      if (this.message?.length !== this.messageBytes) continue;
      messages.push(this.message);
      this.message = undefined;
      this.prefixBytes = 0;
    }
    return messages;
  }

  private readPrefix(chunk: Buffer, at: number): number {
    this.messageBytes = 0;
    if (this.prefixBytes === 0 && chunk.length - at >= PREFIX_BYTES) {
      this.message = this.allocate(chunk, at);
      return PREFIX_BYTES;
    }
    this.prefix ??= Buffer.allocUnsafe(PREFIX_BYTES);
    const copied = chunk.copy(this.prefix, this.prefixBytes, at);
    this.prefixBytes += copied;
    if (this.prefixBytes === PREFIX_BYTES) {
      this.message = this.allocate(this.prefix, 0);
    }
    return copied;
  }

  private fill(message: Buffer, chunk: Buffer, at: number): number {
    const copied = chunk.copy(message, this.messageBytes, at);
    this.messageBytes += copied;
    return copied;
  }

  private allocate(prefix: Buffer, at: number): Buffer {
    const length = this.checkLength(prefix, at);
    return this.reserved?.allocate(length) ?? Buffer.allocUnsafe(length);
  }

  private checkLength(prefix: Buffer, at: number): number {
    if (prefix[at] !== 0) {
      throw new GrpcError(
        GrpcCode.internal,
        'the node sent a compressed reply, which is not supported',
      );
    }
    const length = prefix.readUInt32BE(at + 1);
    if (length <= this.maxBytes) return length;
    const text = `the reply has ${length} bytes; the limit is ${this.maxBytes}`;
    throw new GrpcError(GrpcCode.resourceExhausted, text);
  }
}

/** Replies up to this size always fit, so that status queries work under load. */
const FREE_BYTES = 16 * 1024;

/** Messages of these sizes are worth reusing their memory: without it, every fifty cost a garbage collection. */
const LEAST_REUSED_BYTES = 64 * 1024;
const MOST_REUSED_BYTES = 1024 * 1024;
/** Sizes are rounded up to multiples of this, so that messages of about the same size fit. */
const SIZE_STEP = 64 * 1024;
const MAX_IDLE_BYTES = 8 * 1024 * 1024;

/** Limits the total memory of replies in transit, across all clients that share it, and reuses that of large ones. */
export class ReplyMemory {
  private bytes = 0;
  /** By size. */
  private readonly idle = new Map<number, ArrayBuffer[]>();
  private idleBytes = 0;
  private readonly lent = new WeakSet<ArrayBufferLike>();
  /** Bytes of large replies by who they are for; an entry lasts as long as these arrive. */
  private readonly byOwner = new Map<string, number>();

  constructor(
    private readonly maxBytes: number,
    private readonly maxBytesPerOwner = maxBytes,
  ) {}

  /** For a reply to one owner, which may use only a part of the memory, or to several. */
  reserve(owner?: string): ReplyReservation {
    return new ReplyReservation(this, owner);
  }

  /** Returns whether the limit is kept. */
  add(bytes: number): boolean {
    this.bytes += bytes;
    return this.bytes <= this.maxBytes;
  }

  /** Returns whether the limit of an owner is kept. */
  addFor(owner: string, bytes: number): boolean {
    const held = (this.byOwner.get(owner) ?? 0) + bytes;
    if (held > 0) this.byOwner.set(owner, held);
    else this.byOwner.delete(owner);
    return held <= this.maxBytesPerOwner;
  }

  /** Returns memory that `recycle` takes back. */
  lend(size: number): ArrayBuffer {
    const reused = this.idle.get(size)?.pop();
    if (reused) this.idleBytes -= size;
    const memory = reused ?? Buffer.allocUnsafeSlow(size).buffer;
    this.lent.add(memory);
    return memory;
  }

  /** Takes the memory of a message back for later ones; nothing may refer to the message anymore. */
  recycle({ buffer }: Uint8Array): void {
    const size = buffer.byteLength;
    if (!(buffer instanceof ArrayBuffer && this.lent.delete(buffer))) return;
    if (this.idleBytes + size > MAX_IDLE_BYTES) return;
    const idle = this.idle.get(size) ?? [];
    this.idle.set(size, idle);
    idle.push(buffer);
    this.idleBytes += size;
  }
}

/** The memory of one reply. */
export class ReplyReservation {
  private held = 0;
  /** Of them, those that count for the owner. */
  private counted = 0;

  constructor(
    private readonly memory: ReplyMemory,
    private readonly owner: string | undefined,
  ) {}

  /** Reserves and returns memory for a message; throws a `GrpcError` if the limit is exceeded. */
  allocate(length: number): Buffer {
    const isReused = length >= LEAST_REUSED_BYTES && length <= MOST_REUSED_BYTES;
    const size = isReused ? Math.ceil(length / SIZE_STEP) * SIZE_STEP : length;
    this.grow(size);
    return isReused ? Buffer.from(this.memory.lend(size), 0, length) : Buffer.allocUnsafe(size);
  }

  /** Adds bytes to the reservation; throws a `GrpcError` if the limit is exceeded. */
  grow(bytes: number): void {
    this.held += bytes;
    const isKept = this.memory.add(bytes);
    if (this.held <= FREE_BYTES) return;
    if (!this.countForOwner(this.held)) throw tooMuchForOwner();
    if (!isKept) throw tooMuch();
  }

  private countForOwner(bytes: number): boolean {
    const change = bytes - this.counted;
    this.counted = bytes;
    return this.owner === undefined || change === 0 || this.memory.addFor(this.owner, change);
  }

  /** Frees the reservation; may be called more than once. */
  release(): void {
    this.memory.add(-this.held);
    this.countForOwner(0);
    this.held = 0;
  }
}

function tooMuch(): GrpcError {
  const text = 'too many large replies are arriving at once; try again in a second';
  return new GrpcError(GrpcCode.unavailable, text, 'node');
}

function tooMuchForOwner(): GrpcError {
  const text = 'too many large replies to your queries are arriving at once; try again in a second';
  return new GrpcError(GrpcCode.resourceExhausted, text, 'node');
}
