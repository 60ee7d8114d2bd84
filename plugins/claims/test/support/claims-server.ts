import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

type Status = 'submitted' | 'settled' | 'failed';

export interface ReceivedClaim {
  readonly key: string;
  readonly authorization: string;
  // biome-ignore lint/suspicious/noExplicitAny: any JSON; the assertions of a test state what it expects.
  readonly body: any;
}

/** A service that pays claims: it knows a claim by its idempotency key and counts what reaches it. */
export class ClaimsServer {
  /** Every submission that arrived, repetitions included. */
  readonly received: ReceivedClaim[] = [];
  /** How often the status of a claim was requested. */
  asked = 0;
  /** What it says of a claim, by its id. */
  readonly verdicts = new Map<string, Status>();
  /** What it says of a new claim. */
  verdict: Status = 'settled';
  /** A status it answers submissions with instead, without keeping them. */
  refusal: number | undefined;
  /** Stores a submission and closes the connection, so that the reply is lost. */
  hangsUp = false;
  /** Holds answers back until it resolves. */
  delay: Promise<void> | undefined;
  private readonly server = createServer(
    (request, response) => void this.answer(request, response),
  );

  async start(): Promise<this> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/claims`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === 'GET') return this.find(request, response);
    const key = String(request.headers['idempotency-key']);
    const authorization = String(request.headers.authorization);
    this.received.push({ key, authorization, body: await json(request) });
    await this.delay;
    if (this.refusal !== undefined) return void response.writeHead(this.refusal).end('{}');
    const status = this.verdicts.get(key) ?? this.verdict;
    this.verdicts.set(key, status);
    if (this.hangsUp) return void request.socket.destroy();
    response.end(JSON.stringify({ status, reference: `tx-${key}` }));
  }

  private find(request: IncomingMessage, response: ServerResponse): void {
    this.asked += 1;
    const status = this.verdicts.get(request.url?.split('/').at(-1) ?? '');
    if (status === undefined) return void response.writeHead(404).end('{}');
    response.end(JSON.stringify({ status }));
  }
}
