import { type RequestListener, Server, type ServerOptions } from 'node:http';
import {
  type AddressInfo,
  createServer,
  type ListenOptions,
  type Server as NetServer,
  type Socket,
} from 'node:net';

/**
 * Node accepts one connection of a listening socket per turn of its event loop, so new connections to a busy server, those of
 * health probes among them, would wait for seconds. On Linux, several sockets share a port. With turns of 20 ms, the last of
 * 300 simultaneous connections was answered after 10 s with 1 socket, 1.5 s with 8, 0.7 s with 32 and 0.4 s with 64. A host that
 * refused 240 of 300 turns a second on half a core let its slowest probe wait for 11.9 s with 32, and for 1.2 s with 128.
 */
const LISTENERS = process.platform === 'linux' ? 128 : 1;

/** How many connections the kernel keeps until they are accepted, as far as `net.core.somaxconn` allows for each socket. */
const BACKLOG = 65_536;

interface ListenAddress {
  /** 0 for any free one. */
  readonly port: number;
  readonly host?: string | undefined;
}

/** An HTTP server that accepts connections on several sockets of one port; `maxConnections` applies to all together. */
export class HttpServer extends Server {
  /** They accept connections for this server. */
  private readonly others: NetServer[] = [];
  private open = 0;

  constructor(options: ServerOptions, onRequest: RequestListener) {
    super(options, onRequest);
    this.prependListener('connection', (socket) => this.limitConnections(socket));
  }

  /** Settles once all sockets listen; rejects if another program listens on the port. */
  async start({ port, host }: ListenAddress, listeners = LISTENERS): Promise<void> {
    const address = { ...(host !== undefined && { host }), backlog: BACKLOG / listeners };
    if (listeners === 1) return listen(this, { ...address, port });
    if (port !== 0) await assertFree({ ...address, port });
    await listen(this, { ...address, port, reusePort: true });
    const { port: chosen } = this.address() as AddressInfo;
    while (this.others.length < listeners - 1)
      await this.listenToo({ ...address, port: chosen, reusePort: true });
  }

  /** As Node's own: idle connections are closed, others may end first. */
  override close(callback?: (error?: Error) => void): this {
    const closed = this.others.map((each) => new Promise((resolve) => each.close(resolve)));
    return super.close((error) => void Promise.all(closed).then(() => callback?.(error)));
  }

  override getConnections(callback: (error: Error | null, count: number) => void): this {
    process.nextTick(callback, null, this.open);
    return this;
  }

  private async listenToo(address: ListenOptions): Promise<void> {
    // As Node creates those of HTTP.
    const added = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.emit('connection', socket);
    });
    this.others.push(added);
    await listen(added, address);
    added.on('error', (error) => this.emit('error', error));
  }

  private limitConnections(socket: Socket): void {
    if (this.open >= this.maxConnections) return void socket.destroy();
    this.open += 1;
    socket.once('close', () => {
      this.open -= 1;
    });
  }
}

/** Sockets that share a port would also share it with those of another process of this user. */
async function assertFree(address: ListenOptions): Promise<void> {
  const probe = createServer();
  await listen(probe, address);
  probe.close();
}

function listen(server: NetServer, address: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject).listen(address, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
