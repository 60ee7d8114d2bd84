import { randomUUID } from 'node:crypto';
import type {
  ClientCapabilities,
  JSONRPCRequest,
  JSONRPCResponse,
  McpServer,
  RequestId,
} from '@modelcontextprotocol/server';
import type { Caller, HostMessages } from '@sibyl/plugin-kit';
import { type CallerTurns, RouteReply } from '@sibyl/plugin-kit/surface';
import { z } from 'zod';
import { type Call, Calls, type EventId, EventStream, parseEventId } from './calls.js';
import type { Subscriptions } from './subscriptions.js';
import { type AnswerPosition, parsePosition } from './tools.js';

export type McpSdk = typeof import('@modelcontextprotocol/server');

/** A request at `/mcp`. */
export interface McpRequest {
  readonly caller: Caller;
  readonly body: object;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** Who sends a request, and in which session of the protocol. */
export interface McpClient {
  readonly caller: Caller;
  readonly turns: CallerTurns;
  readonly session: McpSession | undefined;
  /** Differs for each session, and for what the login permits. */
  readonly key: string;
}

interface LegacyDeps {
  readonly hosts: HostMessages;
  readonly subscriptions: Subscriptions;
  readonly loadSdk: () => Promise<McpSdk>;
  readonly createServer: (client: McpClient, call: Call) => Promise<McpServer>;
  /** Reads an answer from the store. */
  readonly follow: (
    client: McpClient,
    position: AnswerPosition,
    stream: EventStream,
    signal: AbortSignal,
  ) => Promise<boolean>;
}

/**
 * Serves clients of 2025-11-25 and before. Their sessions are not stored: the id of a session states what its client can do. Each
 * POST is a call with its own server; what concerns a call and arrives at another host is passed on to the call's host.
 */
export class LegacyEndpoint {
  private readonly calls: Calls;

  constructor(private readonly deps: LegacyDeps) {
    const { hosts } = deps;
    this.calls = new Calls(hosts.hostId);
    hosts.on((message) => this.receive(message));
  }

  async post(client: McpClient, { body, headers, signal }: McpRequest): Promise<RouteReply> {
    const problem = await this.findProblem(body, headers);
    if (problem) return problem;
    const requests = await this.takeRequests(client, body);
    const [first] = requests;
    if (!first) return new RouteReply({ status: 202 });
    const version = client.session?.version ?? headers['mcp-protocol-version'] ?? OLDEST_VERSION;
    const { data: initialize } = Initialize.safeParse(first);
    const call = this.calls.start({
      owner: client.caller.did,
      client: client.key,
      requests: requests.map(({ id }) => id),
      primes: !initialize && version >= RESUMING_VERSION,
    });
    const events = call.stream.read(0, signal);
    const options = { requests, version, isInitialize: initialize !== undefined };
    await this.calls.confirm(call, this.run(client, call, options));
    if (!initialize) return RouteReply.events(events);
    await call.ended;
    return RouteReply.events(events, {
      'Mcp-Session-Id': formatSession(call.protocolVersion ?? version, initialize.params),
    });
  }

  /** Continues the stream of a call, or opens the one for updates of resources. */
  async get(client: McpClient, { headers, signal }: Omit<McpRequest, 'body'>): Promise<RouteReply> {
    const lastId = headers['last-event-id'];
    const id = parseEventId(lastId);
    if (id) return this.resume(client, id, signal);
    const {
      session,
      turns: { sessions },
    } = client;
    // What an access key permits has no updates.
    if (!sessions || !session) return new RouteReply({ status: 405, headers: { Allow: 'POST' } });
    if (!headers.accept?.includes('text/event-stream'))
      return refuse(406, 'Not Acceptable: Client must accept text/event-stream');
    const stream = await this.deps.subscriptions.open({
      owner: client.caller.did,
      session: session.id,
      sessions,
      signal,
      primes: session.version >= RESUMING_VERSION,
      hasMissed: lastId !== undefined,
    });
    return RouteReply.events(stream.read(0, signal));
  }

  /** Events of a call at this host, or an answer from the store. */
  private async resume(client: McpClient, id: EventId, signal: AbortSignal): Promise<RouteReply> {
    const stream = this.calls.findStream(client.key, id.call);
    if (stream) return RouteReply.events(stream.read(id.number, signal));
    const position = parsePosition(id.position);
    const prefix = `${this.deps.hosts.hostId}.${randomUUID()}`;
    const stored = new EventStream({ id: prefix, primes: true });
    if (position && (await this.deps.follow(client, position, stored, signal)))
      return RouteReply.events(stored.read(0, signal));
    return refuse(404, 'No such stream, or not at this host');
  }

  close(): void {
    this.calls.close();
  }

  private async run(
    client: McpClient,
    call: Call,
    { requests, version, isInitialize }: RunOptions,
  ): Promise<void> {
    const server = await this.deps.createServer(client, call);
    await server.connect(call);
    if (!isInitialize)
      await call.handshake({
        protocolVersion: version,
        capabilities: client.session?.capabilities ?? {},
        clientInfo: { name: 'client', version: '' },
      });
    const extra = {
      authInfo: { token: '', clientId: client.caller.did, scopes: [] },
      ...(version >= RESUMING_VERSION && { closeSSEStream: () => call.stream.disconnect() }),
    };
    for (const request of requests) call.onmessage?.(request, extra);
  }

  /** The requests of a body; its answers and cancellations go to their calls. */
  private async takeRequests(client: McpClient, body: object): Promise<JSONRPCRequest[]> {
    const { isJSONRPCRequest, isJSONRPCResponse } = await this.deps.loadSdk();
    const messages: readonly unknown[] = Array.isArray(body) ? body : [body];
    for (const message of messages) {
      if (isJSONRPCResponse(message)) this.answer(client, message);
      const { data: cancelled } = Cancelled.safeParse(message);
      if (cancelled) this.cancel(client, cancelled.params.requestId);
    }
    return messages.filter((message) => isJSONRPCRequest(message));
  }

  /** What is wrong with a request before any of its messages. */
  private async findProblem(
    body: object,
    headers: McpRequest['headers'],
  ): Promise<RouteReply | undefined> {
    const { parseJSONRPCMessage, SUPPORTED_PROTOCOL_VERSIONS } = await this.deps.loadSdk();
    const { accept = '', 'mcp-protocol-version': version } = headers;
    if (!accept.includes('application/json') || !accept.includes('text/event-stream'))
      return refuse(
        406,
        'Not Acceptable: Client must accept both application/json and text/event-stream',
      );
    if (version !== undefined && !SUPPORTED_PROTOCOL_VERSIONS.includes(version))
      return refuse(400, `Bad Request: Unsupported protocol version: ${version.slice(0, 50)}`);
    const messages: readonly unknown[] = Array.isArray(body) ? body : [body];
    if (messages.length > MAX_BATCH)
      return refuse(400, `A batch has at most ${MAX_BATCH} messages`);
    try {
      for (const message of messages) parseJSONRPCMessage(message);
      return undefined;
    } catch {
      return refuse(400, 'Invalid JSON-RPC message', -32700);
    }
  }

  private answer({ key }: McpClient, response: JSONRPCResponse): void {
    const id = parseEventId(response.id);
    if (!id) return;
    if (id.hostId === this.deps.hosts.hostId) this.calls.answer(key, id, response);
    else this.deps.hosts.send(id.hostId, { type: 'answer', client: key, response });
  }

  private cancel({ key }: McpClient, requestId: RequestId): void {
    if (this.calls.cancel(key, requestId)) return;
    this.deps.hosts.send('others', { type: 'cancel', client: key, requestId });
  }

  private receive(message: unknown): void {
    const { data } = HostMessage.safeParse(message);
    if (data?.type === 'cancel') this.calls.cancel(data.client, data.requestId);
    if (data?.type !== 'answer') return;
    const id = parseEventId(data.response.id);
    if (id) this.calls.answer(data.client, id, data.response);
  }
}

interface RunOptions {
  readonly requests: readonly JSONRPCRequest[];
  readonly version: string;
  readonly isInitialize: boolean;
}

/** The version of requests that name none. */
const OLDEST_VERSION = '2025-03-26';
/** The first one whose clients know events without data. */
const RESUMING_VERSION = '2025-11-25';
/** Each message costs as much as a request, and the request limit counts the batch as one. */
const MAX_BATCH = 10;

const RequestIdSchema = z.union([z.string(), z.number()]);
const Cancelled = z.looseObject({
  method: z.literal('notifications/cancelled'),
  params: z.looseObject({ requestId: RequestIdSchema }),
});
const Capability = z.looseObject({}).optional();
const Capabilities = z.object({
  sampling: z.object({ tools: Capability, context: Capability }).optional(),
  elicitation: z.object({ form: Capability, url: Capability }).optional(),
  roots: Capability,
});
const Initialize = z.looseObject({
  method: z.literal('initialize'),
  params: z.object({ capabilities: Capabilities }),
});

const Identified = z.looseObject({ id: RequestIdSchema });
const HostMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('cancel'), client: z.string(), requestId: RequestIdSchema }),
  z.object({
    type: z.literal('answer'),
    client: z.string(),
    response: z.custom<JSONRPCResponse>((value) => Identified.safeParse(value).success),
  }),
]);

/** A session of the protocol, not a conversation. */
export interface McpSession {
  readonly id: string;
  readonly version: string;
  readonly capabilities: ClientCapabilities;
}

const SESSION = /^([0-9a-f-]{36})\.(\d{4})(\d\d)(\d\d)\.([a-z]*)$/;

/** Such as `<uuid>.20251125.sf`: a letter for each thing that the client can do. */
function formatSession(
  version: string,
  { capabilities: { sampling, elicitation, roots } }: z.infer<typeof Initialize>['params'],
): string {
  const letters = [
    sampling && 's',
    sampling?.tools && 't',
    sampling?.context && 'c',
    // Without a mode, forms are meant.
    (elicitation?.form || (elicitation && !elicitation.url)) && 'f',
    elicitation?.url && 'u',
    roots && 'r',
  ].filter((letter) => typeof letter === 'string');
  return `${randomUUID()}.${version.replaceAll('-', '')}.${letters.join('')}`;
}

export function parseSession(text: string | undefined): McpSession | undefined {
  const [id, , year, month, day, letters = ''] = SESSION.exec(text ?? '') ?? [];
  if (id === undefined) return undefined;
  const has = (letter: string, name: string) => (letters.includes(letter) ? { [name]: {} } : {});
  const sampling = letters.includes('s') && { ...has('t', 'tools'), ...has('c', 'context') };
  const elicitation = /[fu]/.test(letters) && { ...has('f', 'form'), ...has('u', 'url') };
  return {
    id,
    version: `${year}-${month}-${day}`,
    capabilities: {
      ...(sampling && { sampling }),
      ...(elicitation && { elicitation }),
      ...has('r', 'roots'),
    },
  };
}

function refuse(status: number, message: string, code = -32000): RouteReply {
  const text = JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null });
  const stream = (async function* () {
    yield text;
  })();
  return new RouteReply({ status, headers: { 'Content-Type': 'application/json' }, stream });
}
