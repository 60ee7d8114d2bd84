import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { generateSigner } from '@sibyl/ucan';
import { Delegation } from '@ucanto/core';

/** A request as the service understood it. */
export interface ServiceRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
  /** The fields of the bearer invocation. */
  readonly invocation: {
    readonly issuer: string;
    readonly audience: string;
    readonly can: string;
    readonly with: string;
    readonly nb: unknown;
  };
}

type Answer = { readonly status: number; readonly body: object };

/** An external service with its own did:web that is called with invocations over HTTP. */
export class DidWebService {
  readonly requests: ServiceRequest[] = [];
  /** What it answers; a test may replace it. */
  answer: (request: ServiceRequest) => Answer | Promise<Answer> = () => ({ status: 404, body: {} });
  private readonly key = generateSigner().did.slice('did:key:'.length);
  private readonly server = createServer(async (request, response) => {
    if (request.url === '/.well-known/did.json')
      return void response.end(JSON.stringify(this.document));
    const { status, body } = await this.answer(await this.read(request));
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });

  async start(): Promise<this> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return this;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  get host(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  get did(): string {
    return `did:web:${encodeURIComponent(this.host)}`;
  }

  private async read(request: IncomingMessage): Promise<ServiceRequest> {
    const body = await text(request);
    const read = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: body && JSON.parse(body),
      invocation: await readInvocation(request.headers.authorization ?? ''),
    };
    this.requests.push(read);
    return read;
  }

  private get document() {
    const id = `${this.did}#key-1`;
    const method = { id, type: 'Multikey', controller: this.did, publicKeyMultibase: this.key };
    return { id: this.did, verificationMethod: [method], assertionMethod: [id] };
  }
}

async function readInvocation(authorization: string): Promise<ServiceRequest['invocation']> {
  const token = Buffer.from(authorization.replace('Bearer ', ''), 'base64');
  const { ok, error } = await Delegation.extract(token);
  if (!ok) throw error;
  const [capability] = ok.capabilities;
  const { can, with: resource, nb } = capability;
  return {
    issuer: ok.issuer.did(),
    audience: ok.audience.did(),
    can,
    with: resource,
    nb,
  };
}
