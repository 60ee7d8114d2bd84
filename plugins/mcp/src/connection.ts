import { AsyncLocalStorage } from 'node:async_hooks';
import type {
  CallToolResult,
  JSONRPCMessage,
  ListToolsResult,
  MCPClient,
  MCPTransport,
} from '@ai-sdk/mcp';
import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { McpServer } from './config.js';

/** Age at which a list is refreshed, so that new tools appear without a restart. */
const LIST_AGE_MS = 60_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 60_000;
const MAX_PAGES = 20;
/** Characters of JSON of a server's tool list; tools beyond it are left out. */
const MAX_LIST_LENGTH = 1024 ** 2;
/** Time limit for the check whether a server is still reachable. */
const PROBE_MS = 2000;

export type McpTool = ListToolsResult['tools'][number];

interface ConnectionDeps {
  readonly name: string;
  readonly server: McpServer;
  readonly context: Pick<PluginContext, 'fetch' | 'logger'>;
}

interface Call {
  readonly tool: string;
  readonly args: Record<string, unknown>;
  readonly signal: AbortSignal;
  readonly invocation: string | undefined;
}

interface Opened {
  readonly client: MCPClient;
  readonly tools: readonly McpTool[];
  readonly listedAt: number;
}

/** A connection to one MCP server, which reconnects after failures. */
export class Connection {
  readonly name: string;
  readonly server: McpServer;
  private readonly context: ConnectionDeps['context'];
  private opened: Opened | undefined;
  private opening: Promise<Opened> | undefined;
  private retryAt = 0;
  private retryMs = FIRST_RETRY_MS;
  private isClosed = false;

  constructor({ name, server, context }: ConnectionDeps) {
    this.name = name;
    this.server = server;
    this.context = context;
  }

  /** The server's tools; after a failure the server is contacted again only after a while. */
  async tools(): Promise<readonly McpTool[]> {
    if (!this.opened) return (await this.open()).tools;
    if (performance.now() - this.opened.listedAt > LIST_AGE_MS) this.refresh(this.opened);
    return this.opened.tools;
  }

  async call({ tool, args, signal, invocation }: Call): Promise<unknown> {
    const { client } = this.opened ?? (await this.open());
    const { timeoutMs } = this.server;
    const deadline = AbortSignal.timeout(timeoutMs);
    const options = { signal: AbortSignal.any([signal, deadline]) };
    const called = withInvocation(invocation, () =>
      client.callTool({ name: tool, arguments: args, options }),
    );
    const result = await called.catch(async (error) => {
      if (signal.aborted) throw signal.reason;
      if (deadline.aborted) throw new Error(describeTimeout(this.name, timeoutMs));
      if (isServerError(error)) throw error;
      // The cause may contain internal addresses, so it goes to the log only.
      this.context.logger.warn({ err: error, server: this.name, tool }, 'MCP call failed');
      await this.closeIfUnreachable(error);
      throw new Error(`${this.name} cannot be reached, or sent an invalid answer`);
    });
    return readResult(result);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.opening?.catch(() => undefined);
    await this.opened?.client.close();
  }

  /** Concurrent turns share one attempt. */
  private open(): Promise<Opened> {
    if (this.isClosed || performance.now() < this.retryAt) {
      return Promise.reject(new Error(`${this.name} is not connected; try again later`));
    }
    this.opening ??= this.connect().finally(() => {
      this.opening = undefined;
    });
    return this.opening;
  }

  private async connect(): Promise<Opened> {
    try {
      const client = await openClient(this.server, this.context);
      const tools = await listTools(client, this.server.timeoutMs);
      this.opened = { client, tools, listedAt: performance.now() };
      this.retryMs = FIRST_RETRY_MS;
      return this.opened;
    } catch (error) {
      this.disconnect(error);
      throw new Error(`${this.name} cannot be reached; try again later`, { cause: error });
    }
  }

  /** Runs in the background; a failure closes the connection. */
  private refresh(opened: Opened): void {
    const { client } = opened;
    this.opened = { ...opened, listedAt: performance.now() };
    listTools(client, this.server.timeoutMs).then(
      (tools) => {
        if (this.opened?.client === client) this.opened = { ...this.opened, tools };
      },
      (error) => this.disconnect(error),
    );
  }

  /** An invalid answer affects one call; a server that does not answer loses its connection. */
  private async closeIfUnreachable(cause: unknown): Promise<void> {
    const opened = this.opened;
    if (!opened) return;
    const timeoutMs = Math.min(this.server.timeoutMs, PROBE_MS);
    await listTools(opened.client, timeoutMs).catch(() => {
      if (this.opened === opened) this.disconnect(cause);
    });
  }

  private disconnect(error: unknown): void {
    const lost = this.opened;
    this.opened = undefined;
    if (this.isClosed) return;
    this.retryAt = performance.now() + this.retryMs;
    this.retryMs = Math.min(2 * this.retryMs, LAST_RETRY_MS);
    this.context.logger.warn({ err: error, server: this.name }, 'MCP server not available');
    lost?.client.close().catch(() => undefined);
  }
}

const describeTimeout = (name: string, timeoutMs: number) =>
  `${name} did not answer within ${timeoutMs / 1000} s; whether the call had an effect is unknown`;

async function listTools(client: MCPClient, timeout: number): Promise<McpTool[]> {
  const tools: McpTool[] = [];
  let length = 0;
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const listed = await client.listTools({
      ...(cursor && { params: { cursor } }),
      options: { timeout },
    });
    for (const tool of listed.tools) {
      length += JSON.stringify(tool).length;
      if (length > MAX_LIST_LENGTH) return tools;
      tools.push(tool);
    }
    cursor = listed.nextCursor;
    if (!cursor) break;
  }
  return tools;
}

/** Errors that the server itself reports have a code. */
function isServerError(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'number';
}

const MAX_REPLY_BYTES = 4 * 1024 ** 2;

type SafeFetch = PluginContext['fetch'];

/** Connects to a server; the SDK loads only if one is configured. */
async function openClient(
  server: McpServer,
  { fetch, logger }: Pick<PluginContext, 'fetch' | 'logger'>,
): Promise<MCPClient> {
  const { createMCPClient } = await loadSdk();
  return createMCPClient({
    transport: 'url' in server ? httpTransport(server, fetch) : await stdioTransport(server),
    clientName: 'sibyl',
    initializationOptions: { timeout: server.timeoutMs },
    // Concerns streams that not every server has; calls report their own errors.
    onUncaughtError: (err) => logger.info({ err }, 'error of an MCP server outside of a call'),
  });
}

/** The SDK loads with the first server. */
async function loadSdk() {
  try {
    return await import('@ai-sdk/mcp');
  } catch (cause) {
    throw new Error('The plugin mcp needs the package @ai-sdk/mcp: install it', { cause });
  }
}

function httpTransport({ url, headers }: Extract<McpServer, { url: string }>, fetch: SafeFetch) {
  return {
    type: 'http' as const,
    url,
    headers,
    fetch: (input: string | URL | Request, init: RequestInit = {}) =>
      fetch(input instanceof Request ? input.url : input, {
        ...init,
        ...addInvocationToBody(init.body),
        maxBytes: MAX_REPLY_BYTES,
        // Streams stay open; each call has its own limit.
        timeoutMs: Number.POSITIVE_INFINITY,
      }),
  };
}

async function stdioTransport({ command, args, env }: Extract<McpServer, { command: string }>) {
  const { StdioMCPTransport } = await import('@ai-sdk/mcp/mcp-stdio');
  return addInvocations(new StdioMCPTransport({ command, args, env, stderr: 'ignore' }));
}

/** The key of the user's invocation in a call's `_meta`. */
export const INVOCATION_META = 'ucan/invocation';

/** The invocation of the current call; the client has no parameter for it. */
const invocation = new AsyncLocalStorage<string>();

const withInvocation = <T>(token: string | undefined, call: () => T): T =>
  token === undefined ? call() : invocation.run(token, call);

/** Adds the invocation to the body of the call it belongs to. */
function addInvocationToBody(body: unknown): { readonly body?: string } {
  const token = invocation.getStore();
  if (token === undefined || typeof body !== 'string') return {};
  return { body: JSON.stringify(addMeta(JSON.parse(body), token)) };
}

/** Adds the invocation to the calls that a transport sends. */
function addInvocations<T extends MCPTransport>(transport: T): T {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const token = invocation.getStore();
    return send(token === undefined ? message : addMeta(message, token), options);
  };
  return transport;
}

function addMeta(message: JSONRPCMessage, token: string): JSONRPCMessage {
  if (!('method' in message) || message.method !== 'tools/call') return message;
  const meta = { ...message.params?._meta, [INVOCATION_META]: token };
  return { ...message, params: { ...message.params, _meta: meta } };
}

const ResultContent = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('image'), mimeType: z.string() }),
  z.object({ type: z.literal('audio'), mimeType: z.string() }),
  z.object({
    type: z.literal('resource'),
    resource: z.object({ uri: z.string(), text: z.string().optional() }),
  }),
  z.object({ type: z.literal('resource_link'), uri: z.string() }),
]);

const ToolReply = z.object({
  isError: z.boolean().optional(),
  structuredContent: z.unknown().optional(),
  toolResult: z.unknown().optional(),
  content: z.array(ResultContent.or(z.object({ type: z.string() }))).optional(),
});

/** The result for the model; one that is marked as an error is thrown. */
function readResult(result: CallToolResult): unknown {
  const { isError, structuredContent, toolResult, content = [] } = ToolReply.parse(result);
  const text = content.map(describeContent).join('\n');
  if (isError) throw new Error(text || 'The tool failed without a reason');
  return structuredContent ?? toolResult ?? text;
}

function describeContent(content: { readonly type: string }): string {
  const { data } = ResultContent.safeParse(content);
  switch (data?.type) {
    case 'text':
      return data.text;
    case 'image':
    case 'audio':
      return `[${data.type}, ${data.mimeType}]`;
    case 'resource':
      return data.resource.text ?? `[resource ${data.resource.uri}]`;
    case 'resource_link':
      return `[resource ${data.uri}]`;
    default:
      return `[${content.type}]`;
  }
}
