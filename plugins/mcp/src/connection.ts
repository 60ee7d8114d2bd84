import { AsyncLocalStorage } from 'node:async_hooks';
import type {
  CallToolResult,
  JSONRPCMessage,
  ListToolsResult,
  MCPClient,
  MCPTransport,
} from '@ai-sdk/mcp';
import type { PluginContext } from '@sibyl/plugin-kit';
import type { McpServer } from './config.js';

/** A list is asked for again after this long, so that new tools appear without a restart. */
const LIST_AGE_MS = 60_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 60_000;
const MAX_PAGES = 20;
/** What the list of a server's tools may take, as characters of JSON; tools beyond it are left out. */
const MAX_LIST_LENGTH = 1024 ** 2;
/** How long a server may take to show that it is still there. */
const PROBE_MS = 2000;

export type McpTool = ListToolsResult['tools'][number];

interface ConnectionParts {
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

/** One MCP server: connected when first needed, and again after it was away. */
export class Connection {
  readonly name: string;
  readonly server: McpServer;
  readonly #context: ConnectionParts['context'];
  #opened: Opened | undefined;
  #opening: Promise<Opened> | undefined;
  #retryAt = 0;
  #retryMs = FIRST_RETRY_MS;
  #isClosed = false;

  constructor({ name, server, context }: ConnectionParts) {
    this.name = name;
    this.server = server;
    this.#context = context;
  }

  /** The tools it has; a server that is away is asked again only after a while. */
  async tools(): Promise<readonly McpTool[]> {
    if (!this.#opened) return (await this.#open()).tools;
    if (performance.now() - this.#opened.listedAt > LIST_AGE_MS) this.#refresh();
    return this.#opened.tools;
  }

  async call({ tool, args, signal, invocation }: Call): Promise<unknown> {
    const { client } = this.#opened ?? (await this.#open());
    const { timeoutMs } = this.server;
    const deadline = AbortSignal.timeout(timeoutMs);
    const options = { signal: AbortSignal.any([signal, deadline]) };
    const called = withInvocation(invocation, () =>
      client.callTool({ name: tool, arguments: args, options }),
    );
    const result = await called.catch(async (error) => {
      if (signal.aborted) throw signal.reason;
      if (deadline.aborted) throw new Error(overdue(this.name, timeoutMs));
      if (isRefusal(error)) throw error;
      // What went wrong may name addresses inside of the network: it is for the log alone.
      this.#context.logger.warn({ err: error, server: this.name, tool }, 'MCP call failed');
      await this.#loseIfAway(error);
      throw new Error(`${this.name} cannot be reached, or gave an answer that cannot be read`);
    });
    return resultOf(result);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#opening?.catch(() => undefined);
    await this.#opened?.client.close();
  }

  /** Many turns may ask at once: they share one attempt. */
  #open(): Promise<Opened> {
    if (this.#isClosed || performance.now() < this.#retryAt) {
      return Promise.reject(new Error(`${this.name} is not connected; try again later`));
    }
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #connect(): Promise<Opened> {
    try {
      const client = await openClient(this.server, this.#context);
      const tools = await listTools(client, this.server.timeoutMs);
      this.#opened = { client, tools, listedAt: performance.now() };
      this.#retryMs = FIRST_RETRY_MS;
      return this.#opened;
    } catch (error) {
      this.#lose(error);
      throw new Error(`${this.name} cannot be reached; try again later`, { cause: error });
    }
  }

  /** In the background; a failure is noticed by the next who needs the server. */
  #refresh(): void {
    const { client } = this.#opened as Opened;
    this.#opened = { ...(this.#opened as Opened), listedAt: performance.now() };
    listTools(client, this.server.timeoutMs).then(
      (tools) => {
        if (this.#opened?.client === client) this.#opened = { ...this.#opened, tools };
      },
      (error) => this.#lose(error),
    );
  }

  /** An answer that cannot be read is the fault of one call, a server that gives none is everybody's. */
  async #loseIfAway(fault: unknown): Promise<void> {
    const opened = this.#opened;
    if (!opened) return;
    const patience = Math.min(this.server.timeoutMs, PROBE_MS);
    await listTools(opened.client, patience).catch(() => {
      if (this.#opened === opened) this.#lose(fault);
    });
  }

  #lose(error: unknown): void {
    const lost = this.#opened;
    this.#opened = undefined;
    if (this.#isClosed) return;
    this.#retryAt = performance.now() + this.#retryMs;
    this.#retryMs = Math.min(2 * this.#retryMs, LAST_RETRY_MS);
    this.#context.logger.warn({ err: error, server: this.name }, 'MCP server not available');
    lost?.client.close().catch(() => undefined);
  }
}

const overdue = (name: string, timeoutMs: number) =>
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

/** A refusal of the server carries a code. */
function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'number';
}

const MAX_REPLY_BYTES = 4 * 1024 ** 2;

type SafeFetch = PluginContext['fetch'];

/** Connects to a server; the SDK is loaded by the first host that has one. */
export async function openClient(
  server: McpServer,
  { fetch, logger }: Pick<PluginContext, 'fetch' | 'logger'>,
): Promise<MCPClient> {
  const { createMCPClient } = await import('@ai-sdk/mcp');
  return createMCPClient({
    transport: 'url' in server ? httpTransport(server, fetch) : await stdioTransport(server),
    clientName: 'sibyl',
    initializationOptions: { timeout: server.timeoutMs },
    // Of streams beside the calls, which not every server has: a call that fails says so itself.
    onUncaughtError: (err) => logger.info({ err }, 'fault beside the calls of an MCP server'),
  });
}

function httpTransport({ url, headers }: Extract<McpServer, { url: string }>, fetch: SafeFetch) {
  return {
    type: 'http' as const,
    url,
    headers,
    fetch: ((input: string | URL, init: RequestInit = {}) =>
      fetch(input, {
        ...init,
        body: bodyWithInvocation(init.body) as NonNullable<RequestInit['body']>,
        maxBytes: MAX_REPLY_BYTES,
        // Streams stay open; each call has a limit of its own.
        timeoutMs: Number.POSITIVE_INFINITY,
      })) as typeof globalThis.fetch,
  };
}

async function stdioTransport({ command, args, env }: Extract<McpServer, { command: string }>) {
  const { StdioMCPTransport } = await import('@ai-sdk/mcp/mcp-stdio');
  return carryInvocations(new StdioMCPTransport({ command, args, env, stderr: 'ignore' }));
}

/** Where a server finds the user's invocation: in the call's `_meta`, on every transport alike. */
export const INVOCATION_META = 'ucan/invocation';

/** The invocation that goes with the call under way; the client has no parameter for it. */
const invocation = new AsyncLocalStorage<string>();

export const withInvocation = <T>(token: string | undefined, call: () => T): T =>
  token === undefined ? call() : invocation.run(token, call);

/** Adds the invocation to the body of the call it belongs to. */
export function bodyWithInvocation(body: unknown): unknown {
  const token = invocation.getStore();
  if (token === undefined || typeof body !== 'string') return body;
  return JSON.stringify(withMeta(JSON.parse(body), token));
}

/** Adds the invocation to the calls that a transport sends. */
export function carryInvocations<T extends MCPTransport>(transport: T): T {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const token = invocation.getStore();
    return send(token === undefined ? message : withMeta(message, token), options);
  };
  return transport;
}

function withMeta(message: JSONRPCMessage, token: string): JSONRPCMessage {
  if (!('method' in message) || message.method !== 'tools/call') return message;
  const meta = { ...message.params?._meta, [INVOCATION_META]: token };
  return { ...message, params: { ...message.params, _meta: meta } };
}

type Content = { readonly type: string; readonly [field: string]: unknown };

/** What the model is told of a result; one marked as an error is thrown. */
export function resultOf(result: CallToolResult): unknown {
  const { isError, structuredContent, toolResult } = result as Record<string, unknown>;
  const content = ((result as { content?: unknown }).content ?? []) as readonly Content[];
  const text = content.map(describe).join('\n');
  if (isError) throw new Error(text || 'The tool failed without saying why');
  return structuredContent ?? toolResult ?? text;
}

function describe(content: Content): string {
  switch (content.type) {
    case 'text':
      return String(content.text);
    case 'image':
    case 'audio':
      return `[${content.type}, ${content.mimeType}]`;
    case 'resource': {
      const { uri, text } = content.resource as { uri: string; text?: string };
      return text ?? `[resource ${uri}]`;
    }
    case 'resource_link':
      return `[resource ${content.uri}]`;
    default:
      return `[${content.type}]`;
  }
}
