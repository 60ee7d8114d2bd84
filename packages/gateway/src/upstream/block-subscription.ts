import { WebSocket } from 'ws';
import { z } from 'zod';

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 60_000;
const HANDSHAKE_MS = 5000;
/** Nodes ping about every half minute. */
const SILENCE_MS = 90_000;
/** The header of a block takes less than a kilobyte. */
const MAX_EVENT_BYTES = 256 * 1024;

const SUBSCRIBE = JSON.stringify({
  jsonrpc: '2.0',
  id: 1,
  method: 'subscribe',
  params: { query: "tm.event='NewBlockHeader'" },
});

const BlockEvent = z.object({
  result: z.object({
    data: z.object({
      value: z.object({ header: z.object({ height: z.string().regex(/^\d{1,15}$/) }) }),
    }),
  }),
});

export interface SubscriptionOptions {
  /** The `http:` or `https:` address of the node's RPC. */
  readonly url: URL;
  readonly authorization: string | undefined;
  readonly ca?: readonly string[] | undefined;
  readonly onBlock: (height: number) => void;
}

/** Subscribes to the new blocks of a CometBFT node; subscribes again after a failure, until it is closed. */
export class BlockSubscription {
  private socket: WebSocket | undefined;
  private retry: NodeJS.Timeout | undefined;
  private silence: NodeJS.Timeout | undefined;
  private failures = 0;
  private isClosed = false;

  constructor(private readonly options: SubscriptionOptions) {
    this.connect();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.socket?.terminate();
  }

  private connect(): void {
    const { url, authorization, ca } = this.options;
    const address = new URL(url);
    address.pathname = `${url.pathname.replace(/\/$/, '')}/websocket`;
    address.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address, {
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: MAX_EVENT_BYTES,
      ...(authorization && { headers: { authorization } }),
      ...(ca && { ca: [...ca] }),
    });
    this.socket = socket;
    socket.on('open', () => socket.send(SUBSCRIBE));
    socket.on('message', (data) => this.receive(String(data)));
    socket.on('ping', () => this.listen());
    // The reason does not matter: polls report whether the node is available.
    socket.on('error', () => {});
    socket.on('close', () => this.reconnect());
    this.listen();
  }

  private receive(text: string): void {
    this.listen();
    const { data } = BlockEvent.safeParse(parse(text));
    if (!data) return;
    this.failures = 0;
    this.options.onBlock(Number(data.result.data.value.header.height));
  }

  /** A connection on which nothing arrives may be dead. */
  private listen(): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.socket?.terminate(), SILENCE_MS).unref();
  }

  private reconnect(): void {
    clearTimeout(this.silence);
    if (this.isClosed) return;
    const waitMs = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures);
    this.failures += 1;
    this.retry = setTimeout(() => this.connect(), waitMs).unref();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
