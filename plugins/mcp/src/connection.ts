import type { ListToolsResult, MCPClient } from '@ai-sdk/mcp';
import type { PluginContext } from '@sibyl/plugin-kit';
import { withInvocation } from './invocation-meta.js';
import { openClient } from './open-client.js';
import { resultOf } from './result-of.js';
import type { McpServer } from './server-config.js';

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
