import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** A proxy between a host and its database that can interrupt the connections. */
export interface TcpProxy {
  readonly url: string;
  /** Connections stay open, but no data passes, also on new ones. */
  freeze(): void;
  /** The data that was held back passes. */
  thaw(): void;
  /** Notifications of PostgreSQL do not pass; everything else does. */
  mute(): void;
  unmute(): void;
  /** What a client sends from now on arrives this much later, in its order; 0 for no delay. */
  delay(ms: number): void;
  /** Closes every connection, and new ones at once. */
  disconnect(): void;
  reconnect(): void;
  /** Closes every connection and accepts no more. */
  close(): Promise<void>;
}

export async function startTcpProxy(target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const state = { isFrozen: false, isMuted: false, isDisconnected: false, delayMs: 0 };
  const server = createServer((client) => {
    if (state.isDisconnected) return void client.destroy();
    const upstream = connect(Number(port || 5432), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket.on('error', () => undefined));
      socket.on('close', () => sockets.delete(socket));
    }
    const filter = new NotificationFilter();
    const send = createDelayedWriter(upstream);
    client.on('data', (data) => send(data, state.delayMs));
    upstream.on('data', (data) => {
      const others = filter.remove(data);
      client.write(state.isMuted ? others : data);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
    if (state.isFrozen) for (const socket of [client, upstream]) socket.pause();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(target);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const destroyAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: url.href,
    freeze: () => {
      state.isFrozen = true;
      for (const socket of sockets) socket.pause();
    },
    thaw: () => {
      state.isFrozen = false;
      for (const socket of sockets) socket.resume();
    },
    mute: () => {
      state.isMuted = true;
    },
    unmute: () => {
      state.isMuted = false;
    },
    delay: (ms) => {
      state.delayMs = ms;
    },
    disconnect: () => {
      state.isDisconnected = true;
      destroyAll();
    },
    reconnect: () => {
      state.isDisconnected = false;
    },
    close: async () => {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      destroyAll();
      await closed;
    },
  };
}

/** Later data never overtakes earlier data. */
function createDelayedWriter(target: Socket): (data: Buffer, ms: number) => void {
  let last = Promise.resolve();
  let waiting = 0;
  return (data, ms) => {
    if (ms === 0 && waiting === 0) return void target.write(data);
    waiting += 1;
    const passes = sleep(ms);
    last = last
      .then(() => passes)
      .then(() => {
        waiting -= 1;
        if (!target.destroyed) target.write(data);
      });
  };
}

const NOTIFICATION = 'A'.charCodeAt(0);
/** The type of a message, and its length without the type. */
const HEAD_BYTES = 5;

/** Finds the messages of a PostgreSQL server in its stream, which must not be encrypted. */
class NotificationFilter {
  private head: number[] = [];
  /** Bytes that are left of the current message. */
  private left = 0;
  private isNotification = false;

  /** Returns the data without notifications. */
  remove(data: Buffer): Buffer {
    const others: Buffer[] = [];
    for (let at = 0; at < data.length; ) {
      if (this.left === 0) at = this.readHead(data, at, others);
      const end = Math.min(data.length, at + this.left);
      if (!this.isNotification) others.push(data.subarray(at, end));
      this.left -= end - at;
      at = end;
    }
    return Buffer.concat(others);
  }

  private readHead(data: Buffer, from: number, others: Buffer[]): number {
    let at = from;
    while (this.head.length < HEAD_BYTES && at < data.length) this.head.push(data[at++] ?? 0);
    if (this.head.length < HEAD_BYTES) return at;
    const head = Buffer.from(this.head);
    this.head = [];
    this.isNotification = head[0] === NOTIFICATION;
    this.left = head.readInt32BE(1) - (HEAD_BYTES - 1);
    if (!this.isNotification) others.push(head);
    return at;
  }
}
