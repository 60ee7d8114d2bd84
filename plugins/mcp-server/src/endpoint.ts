import type { AuthInfo, McpHttpHandler, McpServer } from '@modelcontextprotocol/server';
import type { Caller, HostMessages, Logger, OracleFacts, PluginDatabase } from '@sibyl/plugin-kit';
import { type CallerSessions, RouteReply, type Surface } from '@sibyl/plugin-kit/surface';
import { z } from 'zod';
import type { Call, EventStream } from './calls.js';
import {
  LegacyEndpoint,
  type McpClient,
  type McpRequest,
  type McpSdk,
  parseSession,
} from './legacy-endpoint.js';
import { Subscriptions } from './subscriptions.js';
import {
  type AnswerPosition,
  follow,
  formatPosition,
  hideBugs,
  type Reading,
  registerTools,
} from './tools.js';

/** An error may describe every part of a request. */
const MAX_REASON = 2000;

interface McpEndpointDeps {
  readonly surface: Surface;
  readonly publicUrl: string;
  readonly pageUrl: string;
  readonly oracle: OracleFacts;
  readonly logger: Logger;
  readonly database: PluginDatabase;
  readonly hosts: HostMessages;
}

/**
 * Adds tools, resources or prompts of another plugin. Each request has its own server, so it is called for each; never with an
 * access key, which permits no more than chatting.
 */
export type McpExtension = (server: McpServer, caller: Caller) => void | Promise<void>;

/** Serves clients of 2026-07-28, one request at a time, and passes requests of older ones on. */
export class McpEndpoint {
  private sdk: Promise<McpSdk> | undefined;
  private handler: Promise<McpHttpHandler> | undefined;
  private readonly extensions: McpExtension[] = [];
  private readonly subscriptions: Subscriptions;
  private readonly legacy: LegacyEndpoint;

  constructor(private readonly deps: McpEndpointDeps) {
    const { hosts } = deps;
    this.subscriptions = new Subscriptions(deps);
    this.legacy = new LegacyEndpoint({
      hosts,
      subscriptions: this.subscriptions,
      loadSdk: () => this.loadSdk(),
      createServer: (client, call) => this.createServer(client, call),
      follow: (...args) => this.follow(...args),
    });
  }

  extend(extension: McpExtension): void {
    this.extensions.push(extension);
  }

  /** Reports the change of a resource that an extension added to those clients of a user that have subscribed to it. */
  reportUpdate({ owner, uri }: { readonly owner: string; readonly uri: string }): void {
    this.subscriptions.publish(owner, uri);
  }

  async post(request: McpRequest): Promise<RouteReply> {
    const { isLegacyRequest } = await this.loadSdk();
    const { caller, body, headers, signal } = request;
    const client = this.readClient(caller, headers);
    const sent = new Request(`${this.deps.publicUrl}/mcp`, {
      method: 'POST',
      headers: selectHeaders(headers),
      signal,
    });
    if (await isLegacyRequest(sent, body)) return this.legacy.post(client, request);
    const { fetch } = await this.chooseHandler(client, body, signal);
    return toReply(await fetch(sent, { parsedBody: body, authInfo: toAuthInfo(client) }));
  }

  get(request: Omit<McpRequest, 'body'>): Promise<RouteReply> {
    return this.legacy.get(this.readClient(request.caller, request.headers), request);
  }

  async close(): Promise<void> {
    this.legacy.close();
    await (await this.handler)?.close();
  }

  private readClient(caller: Caller, headers: McpRequest['headers']): McpClient {
    const turns = this.deps.surface.for(caller);
    const text = headers['mcp-session-id'];
    const session = parseSession(text);
    const permitted = turns.sessions ? 'all' : `chat ${turns.onlySession ?? ''}`;
    // Nothing can refer to a request without a session.
    const key = `${caller.did} ${permitted} ${session?.id ?? crypto.randomUUID()}`;
    return { caller, turns, session, key };
  }

  /** The SDK loads with the first request. */
  private loadSdk(): Promise<McpSdk> {
    this.sdk ??= import('@modelcontextprotocol/server');
    return this.sdk;
  }

  /**
   * A stream of updates has its own handler, because a handler reports all updates to all of its clients. What an access key permits
   * has no updates: the shared handler refuses the stream.
   */
  private chooseHandler(
    client: McpClient,
    body: object,
    signal: AbortSignal,
  ): Promise<McpHttpHandler> {
    const { sessions } = client.turns;
    if (sessions && Listen.safeParse(body).success)
      return this.createHandler({ client, sessions, signal });
    this.handler ??= this.createHandler();
    return this.handler;
  }

  private async createHandler(listener?: Listener): Promise<McpHttpHandler> {
    const { createMcpHandler, InMemoryServerEventBus } = await this.loadSdk();
    const { logger } = this.deps;
    const bus = new InMemoryServerEventBus();
    const handler = createMcpHandler(({ authInfo }) => this.createServer(readClient(authInfo)), {
      legacy: 'reject',
      // A client then sees that the server is alive, however long the answer takes.
      responseMode: 'sse',
      maxSubscriptions: listener ? 1 : 0,
      bus,
      onerror: ({ message }) =>
        logger.info({ reason: message.slice(0, MAX_REASON) }, 'an MCP request was refused'),
    });
    if (listener) {
      const { client, sessions, signal } = listener;
      const { ended } = this.subscriptions.watch({
        owner: client.caller.did,
        sessions,
        signal,
        onUpdate: (uri) => uri !== undefined && handler.notify.resourceUpdated(uri),
      });
      void ended.then(() => handler.close());
    }
    return handler;
  }

  /** The server of one request. */
  private async createServer(client: McpClient, call?: Call): Promise<McpServer> {
    const { McpServer, ResourceTemplate } = await this.loadSdk();
    const { surface, pageUrl, oracle, logger } = this.deps;
    const { turns, caller, session } = client;
    const resources = turns.sessions && { resources: { subscribe: true, listChanged: false } };
    const server = new McpServer(
      { name: oracle.name, version: '0.1.0', websiteUrl: pageUrl },
      {
        capabilities: { tools: { listChanged: false }, ...resources },
        enforceStrictCapabilities: true,
      },
    );
    registerTools(server, {
      ResourceTemplate,
      turns,
      surface,
      pageUrl,
      logger,
      onPosition: call && ((position) => call.stream.mark(formatPosition(position))),
    });
    if (!turns.sessions) return server;
    if (session) this.registerSubscriptions(server, { owner: caller.did, session: session.id });
    await this.applyExtensions(server, caller);
    return server;
  }

  private registerSubscriptions(
    { server }: McpServer,
    key: { readonly owner: string; readonly session: string },
  ): void {
    server.setRequestHandler('resources/subscribe', async ({ params }) => {
      await hideBugs(this.deps, () => this.subscriptions.subscribe(key, params.uri));
      return {};
    });
    server.setRequestHandler('resources/unsubscribe', async ({ params }) => {
      await hideBugs(this.deps, () => this.subscriptions.unsubscribe(key, params.uri));
      return {};
    });
  }

  /** One that fails costs the client what it would have added, and nothing else. */
  private async applyExtensions(server: McpServer, caller: Caller): Promise<void> {
    for (const extend of this.extensions)
      try {
        await extend(server, caller);
      } catch (err) {
        this.deps.logger.error({ err }, 'an extension of the MCP server failed');
      }
  }

  /** Writes the rest of an answer from the store; returns whether there is such an answer. */
  private async follow(
    { turns }: McpClient,
    position: AnswerPosition,
    stream: EventStream,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { surface, pageUrl, logger } = this.deps;
    const { ResourceTemplate } = await this.loadSdk();
    const { runId, seq, id, token } = position;
    const run = await turns.findRun(runId);
    if (!run) return false;
    const request: Reading['request'] = {
      id,
      ...(token !== undefined && { _meta: { progressToken: token } }),
      notify: async (notification) => stream.write({ jsonrpc: '2.0', ...notification }),
    };
    const onPosition = (next: AnswerPosition) => stream.mark(formatPosition(next));
    const deps = { ResourceTemplate, turns, surface, pageUrl, logger, onPosition };
    follow(deps, run, { request, signal, after: seq })
      .then((result) => stream.write({ jsonrpc: '2.0', id, result }))
      .catch((err) => logger.info({ err, runId }, 'an answer cannot be read again'))
      .finally(() => stream.end());
    return true;
  }
}

/** A client that wants to learn of updates. */
interface Listener {
  readonly client: McpClient;
  readonly sessions: CallerSessions;
  readonly signal: AbortSignal;
}

const Listen = z.looseObject({ method: z.literal('subscriptions/listen') });

/** The SDK passes on what it does not know the type of. */
class RequestClient {
  constructor(readonly client: McpClient) {}
}

const toAuthInfo = (client: McpClient): AuthInfo => ({
  token: '',
  clientId: client.caller.did,
  scopes: [],
  extra: { client: new RequestClient(client) },
});

function readClient(authInfo: AuthInfo | undefined): McpClient {
  const passed = authInfo?.extra?.client;
  if (passed instanceof RequestClient) return passed.client;
  throw new Error('Every request has a client');
}

/** Never the credentials. */
function selectHeaders(headers: McpRequest['headers']): Record<string, string> {
  const selected: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    const isWanted = ['accept', 'content-type'].includes(name) || name.startsWith('mcp-');
    if (isWanted && name !== 'mcp-session-id' && value !== undefined) selected[name] = value;
  }
  return selected;
}

const toReply = ({ status, headers, body }: Response) =>
  new RouteReply({
    status,
    headers: Object.fromEntries(headers),
    ...(body && { stream: body.pipeThrough(new TextDecoderStream()) }),
  });
