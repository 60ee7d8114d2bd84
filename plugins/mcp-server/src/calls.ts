import { randomUUID } from 'node:crypto';
import type {
  JSONRPCMessage,
  JSONRPCRequest,
  JSONRPCResponse,
  MessageExtraInfo,
  RequestId,
  Transport,
} from '@modelcontextprotocol/server';
import { ChangeSignal, LruMap, OracleError, textBytes } from '@sibyl/plugin-kit';

/** Clients reconnect after this time if the server has closed the stream of a call. */
const RETRY_MS = 1_000;
/** Events of one stream that are kept for a client that has lost its connection; older ones are dropped. */
const MAX_STREAM_BYTES = 256 * 1024;

interface StreamOptions {
  /** Begins the ids of the events. */
  readonly id: string;
  /** Whether the client knows events without data, which only give it an id to continue from. */
  readonly primes: boolean;
}

/** Server-sent events that a client can continue to read after a lost connection. */
export class EventStream {
  private readonly events: { readonly number: number; readonly text: string }[] = [];
  private readonly options: StreamOptions;
  private count = 0;
  private keptBytes = 0;
  private position = '';
  private isEnded = false;
  /** Changes when the current reader has to stop. */
  private reader = 0;
  private readonly changed = new ChangeSignal();

  constructor(options: StreamOptions) {
    this.options = options;
    if (options.primes) this.add(`retry: ${RETRY_MS}\ndata: `);
  }

  get bytes(): number {
    return this.keptBytes;
  }

  write(message: JSONRPCMessage): void {
    this.add(`event: message\ndata: ${JSON.stringify(message)}`);
  }

  /** Adds where the rest is stored to the ids of further events. */
  mark(position: string): void {
    const isFirst = this.position === '';
    this.position = `.${position}`;
    if (isFirst && this.options.primes) this.add('data: ');
  }

  /** Ends the connection of the client, which may connect again. */
  disconnect(): void {
    this.reader += 1;
    this.changed.notify();
  }

  end(): void {
    this.isEnded = true;
    this.changed.notify();
  }

  /** The events after a number, then further ones. There is one reader: another one ends it. */
  read(after: number, signal: AbortSignal): AsyncGenerator<string> {
    this.disconnect();
    return this.iterate(after, this.reader, signal);
  }

  private async *iterate(
    after: number,
    reader: number,
    signal: AbortSignal,
  ): AsyncGenerator<string> {
    // The response begins at once.
    yield ': open\n\n';
    for (let last = after; ; ) {
      const fresh = this.events.filter((event) => event.number > last);
      for (const { number, text } of fresh) {
        yield text;
        last = number;
      }
      if (fresh.length > 0) continue;
      if (this.isEnded || this.reader !== reader || signal.aborted) return;
      await this.changed.wait({ signal });
    }
  }

  private add(fields: string): void {
    this.count += 1;
    const id = `${this.options.id}.${this.count}${this.position}`;
    this.keep({ number: this.count, text: `id: ${id}\n${fields}\n\n` });
  }

  private keep(event: { readonly number: number; readonly text: string }): void {
    this.events.push(event);
    this.keptBytes += textBytes(event.text);
    // The last one is the result.
    while (this.keptBytes > MAX_STREAM_BYTES && this.events.length > 1)
      this.keptBytes -= textBytes(this.events.shift()?.text ?? '');
    this.changed.notify();
  }
}

/** Questions of one call that wait for the client. */
const MAX_QUESTIONS = 8;
const HANDSHAKE = 'handshake';

export interface CallOptions {
  readonly hostId: string;
  readonly owner: string;
  /** Identifies the client; no other one can cancel, answer or continue the call. */
  readonly client: string;
  /** The ids of the requests in the body. */
  readonly requests: readonly RequestId[];
  readonly primes: boolean;
  readonly onEnd: (call: Call) => void;
}

/** The requests of one POST of a client of 2025-11-25, as the transport of a server that lives as long as they do. */
export class Call implements Transport {
  readonly id = randomUUID();
  readonly owner: string;
  readonly client: string;
  readonly stream: EventStream;
  /** Resolves when all requests are answered or cancelled. */
  readonly ended: Promise<void>;
  onmessage?: (message: JSONRPCMessage, extra?: MessageExtraInfo) => void;
  onclose?: () => void;
  /** As negotiated. */
  protocolVersion: string | undefined;
  private readonly options: CallOptions;
  private readonly open: Set<RequestId>;
  /** Requests of the server that wait for the client. */
  private readonly questions = new Set<RequestId>();
  private readonly end = Promise.withResolvers<void>();
  private onHandshake: (() => void) | undefined;

  constructor(options: CallOptions) {
    const { hostId, owner, client, requests, primes } = options;
    this.options = options;
    this.owner = owner;
    this.client = client;
    this.open = new Set(requests);
    this.stream = new EventStream({ id: `${hostId}.${this.id}`, primes });
    this.ended = this.end.promise;
  }

  async start(): Promise<void> {}

  setProtocolVersion(version: string): void {
    this.protocolVersion = version;
  }

  /** Repeats for the server what the client has declared, as the beginning of its session did. */
  async handshake(params: JSONRPCRequest['params']): Promise<void> {
    const answered = new Promise<void>((resolve) => {
      this.onHandshake = resolve;
    });
    this.onmessage?.({ jsonrpc: '2.0', id: HANDSHAKE, method: 'initialize', params });
    await answered;
    this.onHandshake = undefined;
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if ('method' in message) {
      if ('id' in message) this.ask(message);
      else this.stream.write(this.renameCancelled(message));
      return;
    }
    if (this.onHandshake) return this.onHandshake();
    this.stream.write(message);
    if (message.id !== undefined) this.settle(message.id);
  }

  /** Returns whether the request belongs to this call. */
  cancel(requestId: RequestId): boolean {
    if (!this.open.has(requestId)) return false;
    this.onmessage?.({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
    // A server does not answer a cancelled request.
    this.settle(requestId);
    return true;
  }

  /** Takes the only answer to a question; returns whether it waits for one. */
  answer(question: number, response: JSONRPCResponse): boolean {
    if (!this.questions.delete(question)) return false;
    this.onmessage?.({ ...response, id: question });
    return true;
  }

  async close(): Promise<void> {
    this.questions.clear();
    this.stream.end();
    this.onclose?.();
  }

  private ask(request: JSONRPCRequest): void {
    if (this.questions.size < MAX_QUESTIONS) {
      this.questions.add(request.id);
      this.stream.write({ ...request, id: this.nameQuestion(request.id) });
      return;
    }
    const error = { code: -32000, message: `The client already has ${MAX_QUESTIONS} questions` };
    queueMicrotask(() => this.onmessage?.({ jsonrpc: '2.0', id: request.id, error }));
  }

  private renameCancelled(message: JSONRPCMessage): JSONRPCMessage {
    if (!('method' in message) || message.method !== 'notifications/cancelled') return message;
    const requestId = message.params?.requestId;
    if (typeof requestId !== 'number') return message;
    this.questions.delete(requestId);
    return { ...message, params: { ...message.params, requestId: this.nameQuestion(requestId) } };
  }

  /** The answer may reach another host, which learns from it where the call is. */
  private nameQuestion = (id: RequestId) => `${this.options.hostId}.${this.id}.${id}`;

  private settle(id: RequestId): void {
    this.open.delete(id);
    if (this.open.size > 0) return;
    this.stream.end();
    this.options.onEnd(this);
    this.end.resolve();
    // The server still has to see that its last message was sent.
    setImmediate(() => void this.close());
  }
}

const MAX_CALLS_PER_USER = 32;
const MAX_CALLS = 500;
/** How long the events of a call that has ended can be read. */
const KEEP_MS = 60_000;
const MAX_KEPT_BYTES = 16 * 1024 * 1024;

/** The calls of clients of 2025-11-25 at this host: those that run, and for a minute those that have ended. */
export class Calls {
  private readonly running = new Map<string, Call>();
  private readonly ended = new LruMap<string, Pick<Call, 'client' | 'stream'>>({
    maxBytes: MAX_KEPT_BYTES,
    measure: ({ stream }) => stream.bytes,
  });

  constructor(private readonly hostId: string) {}

  /** Throws if the user or the host has too many. */
  start(call: Pick<CallOptions, 'owner' | 'client' | 'requests' | 'primes'>): Call {
    const own = [...this.running.values()].filter(({ owner }) => owner === call.owner);
    if (own.length >= MAX_CALLS_PER_USER)
      throw new OracleError('too_many_streams', { retryAfterSeconds: 5 });
    if (this.running.size >= MAX_CALLS)
      throw new OracleError('host_busy', { retryAfterSeconds: 5 });
    const started = new Call({ ...call, hostId: this.hostId, onEnd: (each) => this.keep(each) });
    this.running.set(started.id, started);
    return started;
  }

  /** Drops a call whose server fails before it has its requests: nothing would end it. */
  async confirm(call: Call, started: Promise<void>): Promise<void> {
    try {
      await started;
    } catch (error) {
      this.running.delete(call.id);
      await call.close();
      throw error;
    }
  }

  /** The events of a call of this client. */
  findStream(client: string, id: string): EventStream | undefined {
    const call = this.running.get(id) ?? this.ended.get(id);
    return call?.client === client ? call.stream : undefined;
  }

  /** Returns whether a call of this client has asked the question. */
  answer(client: string, { call: id, number }: EventId, response: JSONRPCResponse): boolean {
    const call = this.running.get(id);
    return call?.client === client && call.answer(number, response);
  }

  /** Returns whether a call of this client has the request. */
  cancel(client: string, requestId: RequestId): boolean {
    return [...this.running.values()].some(
      (call) => call.client === client && call.cancel(requestId),
    );
  }

  /** Ends the streams; turns of the calls continue elsewhere. */
  close(): void {
    for (const { stream } of this.running.values()) stream.end();
  }

  private keep({ id, client, stream }: Call): void {
    this.running.delete(id);
    this.ended.set(id, { client, stream });
    setTimeout(() => this.ended.delete(id), KEEP_MS).unref();
  }
}

/** The id of an event, or of a question. */
export interface EventId {
  readonly hostId: string;
  readonly call: string;
  readonly number: number;
  /** Where the rest is stored, if it is. */
  readonly position: string | undefined;
}

const EVENT_ID = /^([0-9a-f]{1,32})\.([0-9a-f-]{36})\.(\d{1,9})(?:\.([\w-]{1,2000}))?$/;

export function parseEventId(text: unknown): EventId | undefined {
  const [, hostId, call, number, position] = EVENT_ID.exec(String(text)) ?? [];
  if (hostId === undefined || call === undefined) return undefined;
  return { hostId, call, number: Number(number), position };
}
