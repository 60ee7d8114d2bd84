import { randomUUID } from 'node:crypto';
import type { McpHttpHandler, McpRequestContext, McpServer } from '@modelcontextprotocol/server';
import {
  type Caller,
  type CallerTurns,
  type Logger,
  type OracleFacts,
  RouteReply,
  type Surface,
} from '@sibyl/plugin-kit';
import { z } from 'zod';
import { registerTools } from './tools.js';

interface McpEndpointDeps {
  readonly surface: Surface;
  readonly publicUrl: string;
  readonly oracle: OracleFacts;
  readonly logger: Logger;
}

interface McpRequest {
  readonly caller: Caller;
  readonly body: object;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/**
 * Adds tools, resources or prompts of another plugin. Each request has its own server, so it is called for each; never with an
 * access key, which permits no more than chatting.
 */
export type McpExtension = (server: McpServer, caller: Caller) => void | Promise<void>;

/** What the tools of one request need to know about its client. */
interface McpClient {
  readonly caller: Caller;
  readonly turns: CallerTurns;
  /** Identifies the client in requests of 2025-11-25; the host keeps nothing for it. */
  readonly sessionKey: string | undefined;
}

/**
 * Serves one request at a time, without state between them. A client of 2026-07-28 cancels a call by closing its stream. One of
 * 2025-11-25 sends a notification instead, and a lost connection cancels nothing.
 */
export class McpEndpoint {
  private handler: Promise<McpHttpHandler> | undefined;
  /** Calls of clients of 2025-11-25 that run on this host. */
  private readonly running = new Map<string, AbortController>();
  private readonly extensions: McpExtension[] = [];

  constructor(private readonly deps: McpEndpointDeps) {}

  extend(extension: McpExtension): void {
    this.extensions.push(extension);
  }

  async handle({ caller, body, headers, signal }: McpRequest): Promise<RouteReply> {
    const session = SessionId.safeParse(headers['mcp-session-id']).data;
    const sessionKey = session && `${caller.did} ${session}`;
    const { data: cancelled } = Cancelled.safeParse(body);
    if (cancelled) this.running.get(toKey(sessionKey, cancelled.params.requestId))?.abort();
    const client: McpClient = { caller, turns: this.deps.surface.for(caller), sessionKey };
    this.handler ??= this.createHandler();
    const { fetch } = await this.handler;
    const response = await fetch(
      new Request(`${this.deps.publicUrl}/mcp`, {
        method: 'POST',
        headers: selectHeaders(headers),
        signal,
      }),
      {
        parsedBody: body,
        authInfo: {
          token: '',
          clientId: caller.did,
          scopes: [],
          extra: { client: new RequestClient(client) },
        },
      },
    );
    return toReply(response, Initialize.safeParse(body).success);
  }

  async close(): Promise<void> {
    await (await this.handler)?.close();
  }

  /** The SDK loads with the first request. */
  private async createHandler(): Promise<McpHttpHandler> {
    const { createMcpHandler, McpServer } = await import('@modelcontextprotocol/server');
    const { publicUrl, oracle, logger } = this.deps;
    const createServer = async ({ authInfo, era }: McpRequestContext) => {
      const { caller, turns, sessionKey } = readClient(authInfo);
      const server = new McpServer(
        { name: oracle.name, version: '0.1.0', websiteUrl: publicUrl },
        { capabilities: { tools: { listChanged: false } } },
      );
      registerTools(server, {
        turns,
        publicUrl,
        logger,
        track: ({ id, signal }, task) =>
          era === 'modern' ? task(signal) : this.track(toKey(sessionKey, id), task),
      });
      if (turns.sessions) await this.applyExtensions(server, caller);
      return server;
    };
    return createMcpHandler(createServer, {
      // A client then sees that the server is alive, however long the answer takes.
      responseMode: 'sse',
      // The tools never change.
      maxSubscriptions: 0,
      onerror: (err) => logger.info({ err }, 'an MCP request was refused'),
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

  private async track<T>(key: string, task: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const call = new AbortController();
    this.running.set(key, call);
    try {
      return await task(call.signal);
    } finally {
      if (this.running.get(key) === call) this.running.delete(key);
    }
  }
}

const SessionId = z.uuid();
const RequestId = z.union([z.string(), z.number()]);
const Cancelled = z.looseObject({
  method: z.literal('notifications/cancelled'),
  params: z.looseObject({ requestId: RequestId }),
});
const Initialize = z.looseObject({ method: z.literal('initialize') });

/** Without a session, no notification can name the call. */
const toKey = (sessionKey: string | undefined, id: string | number) =>
  `${sessionKey ?? randomUUID()} ${JSON.stringify(id)}`;

/** The SDK passes on what it does not know the type of. */
class RequestClient {
  constructor(readonly client: McpClient) {}
}

function readClient(authInfo: McpRequestContext['authInfo']): McpClient {
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

function toReply({ status, headers, body }: Response, isStart: boolean): RouteReply {
  const session = isStart && { 'Mcp-Session-Id': randomUUID() };
  return new RouteReply({
    status,
    headers: { ...Object.fromEntries(headers), ...session },
    ...(body && { stream: body.pipeThrough(new TextDecoderStream()) }),
  });
}
