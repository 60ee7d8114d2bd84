import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A proxy to PostgreSQL that can lose the replies to commits. */
export interface CommitProxy {
  readonly url: string;
  /**
   * Waits for the transaction that sends this text, lets it commit, and closes the connection instead of passing on the
   * reply. Resolves when that has happened. With `staysOpen`, the reply is missing on a connection that seems to work.
   */
  loseCommit(text: string, options?: { readonly staysOpen?: boolean }): Promise<void>;
  close(): void;
}

interface PendingLoss {
  readonly text: string;
  readonly staysOpen: boolean;
  readonly resolve: () => void;
}

export async function startCommitProxy(target: string): Promise<CommitProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const pending = new Set<PendingLoss>();
  const server = createServer((client) => {
    const upstream = connect(Number(port || 5432), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket.on('error', () => undefined));
      socket.once('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    /** What this connection loses with its next commit. */
    let loss: PendingLoss | undefined;
    client.on('data', (data) => {
      loss ??= [...pending].find(({ text }) => data.includes(text));
      upstream.write(data);
    });
    const reader = new CommandReader();
    upstream.on('data', (data) => {
      const hasCommitted = reader.read(data).includes('COMMIT');
      if (!loss || !hasCommitted) return void client.write(data);
      pending.delete(loss);
      loss.resolve();
      if (!loss.staysOpen) client.destroy();
      loss = undefined;
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(target);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: url.href,
    loseCommit: (text, { staysOpen = false } = {}) =>
      new Promise((resolve) => {
        pending.add({ text, staysOpen, resolve });
      }),
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const COMMAND_COMPLETE = 'C';
/** The type of a message, and its length without the type. */
const HEAD_BYTES = 5;

/** Finds the tags of completed commands in what a PostgreSQL server sends, which must not be encrypted. */
class CommandReader {
  private rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);

  read(data: Buffer): string[] {
    this.rest = Buffer.concat([this.rest, data]);
    const tags: string[] = [];
    while (this.rest.length >= HEAD_BYTES) {
      const end = 1 + this.rest.readInt32BE(1);
      if (this.rest.length < end) break;
      if (this.rest.toString('latin1', 0, 1) === COMMAND_COMPLETE)
        tags.push(this.rest.toString('utf8', HEAD_BYTES, end - 1));
      this.rest = this.rest.subarray(end);
    }
    return tags;
  }
}
