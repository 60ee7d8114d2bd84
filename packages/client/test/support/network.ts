import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A proxy between client and server that can fail. */
export interface Network {
  readonly url: string;
  /** Closes all connections. */
  dropConnections(): void;
  /** Closes all connections and rejects new ones until `restore`. */
  goDown(): void;
  restore(): void;
  /** Closes all connections when the client sends something, which is lost. */
  loseNext(): void;
  /** Waits for a rejected connection attempt. */
  waitForAttempt(): Promise<void>;
  close(): void;
}

export async function startNetwork(hostUrl: string): Promise<Network> {
  const target = new URL(hostUrl);
  const sockets = new Set<Socket>();
  const waiting: (() => void)[] = [];
  let isDown = false;
  let isLosing = false;
  const server = createServer((near) => {
    if (isDown) {
      near.destroy();
      for (const resolve of waiting.splice(0)) resolve();
      return;
    }
    const far = connect(Number(target.port), target.hostname);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
    far.pipe(near);
    near.on('data', (data) => {
      if (!isLosing) return void far.write(data);
      isLosing = false;
      dropConnections();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const dropConnections = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    dropConnections,
    goDown: () => {
      isDown = true;
      dropConnections();
    },
    restore: () => {
      isDown = false;
    },
    loseNext: () => {
      isLosing = true;
    },
    waitForAttempt: () => new Promise((resolve) => waiting.push(resolve)),
    close: () => {
      dropConnections();
      server.close();
    },
  };
}
