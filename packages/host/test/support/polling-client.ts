import { once } from 'node:events';
import { WebSocket } from 'ws';
import type { TestUser } from './user.js';

/** A client of Socket.IO over HTTP that sends and reads only when a test wants it to. */
export class PollingClient {
  private constructor(readonly url: string) {}

  /** Connects to a session, and reads until `connected`. */
  static async join(user: TestUser, sessionId: string, auth: object): Promise<PollingClient> {
    const url = `${user.host.url}/socket.io/?EIO=4&transport=polling&sessionId=${sessionId}`;
    const opened = await (await fetch(url)).text();
    const client = new PollingClient(`${url}&sid=${JSON.parse(opened.slice(1)).sid}`);
    await client.send(`40${JSON.stringify(auth)}`);
    for (;;) {
      const { status, text } = await client.read();
      if (status !== 200) throw new Error(`The host refused the connection: ${status} ${text}`);
      if (text.includes('"connected"')) return client;
    }
  }

  async send(packet: string): Promise<number> {
    return (await fetch(this.url, { method: 'POST', body: packet })).status;
  }

  async read(): Promise<{ readonly status: number; readonly text: string }> {
    const response = await fetch(this.url);
    return { status: response.status, text: await response.text() };
  }

  /** Opens a WebSocket for the connection; `url` names another host or connection. */
  async openUpgrade(url = this.url): Promise<Upgrade> {
    const address = url.replace('http:', 'ws:').replace('transport=polling', 'transport=websocket');
    const upgrade = new Upgrade(new WebSocket(address));
    await Promise.race([once(upgrade.wire, 'open'), upgrade.closed]).catch(() => undefined);
    return upgrade;
  }
}

/** A WebSocket to which a connection may be moved. */
class Upgrade {
  readonly received: string[] = [];
  readonly closed: Promise<unknown>;

  constructor(readonly wire: WebSocket) {
    wire.on('message', (data) => this.received.push(String(data)));
    wire.on('error', () => undefined);
    this.closed = new Promise((resolve) => wire.once('close', resolve));
  }

  /** Sends packets, unless the host has closed it. */
  send(...packets: readonly string[]): void {
    if (this.wire.readyState !== WebSocket.OPEN) return;
    for (const packet of packets) this.wire.send(packet);
  }
}
