import { setTimeout as delay } from 'node:timers/promises';
import type {
  CallToolResult,
  Client,
  ElicitRequest,
  ElicitResult,
  GetPromptResult,
  ListPromptsResult,
  ListResourcesResult,
  ListResourceTemplatesResult,
  ListToolsResult,
  ReadResourceResult,
  RequestOptions,
} from '@modelcontextprotocol/client';
import {
  abortable,
  type Logger,
  type PluginContext,
  SafeFetchError,
  withTimeout,
} from '@sibyl/plugin-kit';
import type { McpServer } from './config.js';
import { type ClientTarget, currentCall, loadSdk, openClient, readStatus } from './open-client.js';
import { TOO_LARGE } from './reply-limits.js';

/** Age at which a list is refreshed, for servers that do not report changes. */
const LIST_AGE_MS = 60_000;
const MAX_PAGES = 20;
/** Characters of JSON of a server's tool list; tools beyond it are left out. */
const MAX_LIST_LENGTH = 1024 ** 2;
/** Time limit for the check whether a server is still reachable. */
const PROBE_MS = 2000;
/** Waits before a call that never ran is sent again: a server that restarts is back soon. */
const RETRY_DELAYS_MS = [0, 500, 1500];
/** A failed attempt to connect delays the next one by this many times its duration. */
const BACKOFF_FACTOR = 4;
const MAX_BACKOFF_MS = 60_000;
/** How long a turn waits for a server that is not connected. */
export const SLOW_MS = 3000;
/** After the end of its stream, a reply that was read is still delivered within this time. */
const STREAM_END_MS = 1000;

export type McpTool = ListToolsResult['tools'][number];

export interface ConnectionDeps extends Pick<ClientTarget, 'name' | 'auth' | 'isOwned'> {
  readonly server: McpServer;
  readonly context: Pick<PluginContext, 'fetch' | 'logger'>;
  /** Characters of its tool list; 1 MiB by default. */
  readonly maxListLength?: number;
}

/** What belongs to one request of a user. */
export interface RequestScope {
  readonly signal: AbortSignal;
  /** Answers questions that the server asks during the request. */
  readonly elicit?: (params: ElicitRequest['params']) => Promise<ElicitResult>;
}

interface Opened {
  readonly client: Client;
  tools: readonly McpTool[];
  listedAt: number;
  /** Requests in progress: each still learns whether it ran after the connection was lost. */
  running: number;
}

/** The server accepts only users who signed in. */
export class SignInRequiredError extends Error {
  override readonly name = 'SignInRequiredError';

  constructor(server: string, options?: ErrorOptions) {
    super(`The user has to sign in at ${server}`, options);
  }
}

/** The key of the user's invocation in a call's `_meta`. */
export const INVOCATION_META = 'ucan/invocation';

/** A connection to one MCP server, which reconnects when it is used after a failure. */
export class Connection {
  readonly name: string;
  readonly server: McpServer;
  private readonly target: ClientTarget;
  private readonly logger: Logger;
  private readonly maxListLength: number;
  private opened: Opened | undefined;
  private opening: Promise<Opened> | undefined;
  private openingSince = 0;
  private refreshing: Promise<void> | undefined;
  /** The list changed while it was being read. */
  private isListStale = false;
  private retryAt = 0;
  private lastError: unknown;
  private isClosed = false;
  /** Requests in progress. */
  private running = 0;

  constructor({ name, server, context, maxListLength, ...target }: ConnectionDeps) {
    this.name = name;
    this.server = server;
    this.logger = context.logger;
    this.maxListLength = maxListLength ?? MAX_LIST_LENGTH;
    this.target = { name, server, fetch: context.fetch, logger: context.logger, ...target };
  }

  get isBusy(): boolean {
    return this.running > 0 || this.opening !== undefined;
  }

  /** The server's tools. */
  async tools(): Promise<readonly McpTool[]> {
    if (!this.opened) {
      // A server that hangs delays the first turn that uses it, not those after it.
      if (this.opening && performance.now() - this.openingSince > SLOW_MS)
        throw new UnreachableError(this.name, { cause: 'it does not answer' });
      return (await this.open()).tools;
    }
    if (performance.now() - this.opened.listedAt > LIST_AGE_MS) this.refresh();
    return this.opened.tools;
  }

  /** Whether the server has resources or prompts; false while it is not connected. */
  has(feature: 'resources' | 'prompts'): boolean {
    return this.opened?.client.getServerCapabilities()?.[feature] !== undefined;
  }

  call(
    tool: McpTool,
    args: Record<string, unknown>,
    scope: RequestScope & { readonly invocation?: string | undefined },
  ): Promise<CallToolResult> {
    // Without an output schema the SDK compiles none: schemas of strangers take time and memory.
    const { outputSchema: _, ...toolDefinition } = tool;
    const _meta = scope.invocation ? { [INVOCATION_META]: scope.invocation } : undefined;
    const params = { name: tool.name, arguments: args, ...(_meta && { _meta }) };
    return this.send(scope, (client, options) =>
      client.callTool(params, { ...options, toolDefinition }),
    );
  }

  listResources(cursor: string | undefined, scope: RequestScope): Promise<ListResourcesResult> {
    const params = cursor ? { cursor } : {};
    return this.send(scope, (client, options) =>
      client.request({ method: 'resources/list', params }, options),
    );
  }

  listResourceTemplates(scope: RequestScope): Promise<ListResourceTemplatesResult> {
    return this.send(scope, (client, options) =>
      client.request({ method: 'resources/templates/list', params: {} }, options),
    );
  }

  readResource(uri: string, scope: RequestScope): Promise<ReadResourceResult> {
    return this.send(scope, (client, options) =>
      client.request({ method: 'resources/read', params: { uri } }, options),
    );
  }

  listPrompts(cursor: string | undefined, scope: RequestScope): Promise<ListPromptsResult> {
    const params = cursor ? { cursor } : {};
    return this.send(scope, (client, options) =>
      client.request({ method: 'prompts/list', params }, options),
    );
  }

  getPrompt(
    name: string,
    args: Record<string, string>,
    scope: RequestScope,
  ): Promise<GetPromptResult> {
    return this.send(scope, (client, options) =>
      client.request({ method: 'prompts/get', params: { name, arguments: args } }, options),
    );
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.opening?.catch(() => undefined);
    const { opened } = this;
    this.opened = undefined;
    if (opened) await endSession(opened.client);
  }

  /** Sends a request; one that never ran is sent again, over a new connection. */
  private async send<T>(
    { signal, elicit }: RequestScope,
    request: (client: Client, options: RequestOptions) => Promise<T>,
  ): Promise<T> {
    const { timeoutMs } = this.server;
    const limits = { turn: signal, deadline: AbortSignal.timeout(timeoutMs) };
    this.running += 1;
    try {
      for (let attempt = 0; ; attempt += 1) {
        let opened: Opened | undefined;
        try {
          opened =
            this.opened ??
            (await abortable(() => this.open(), AbortSignal.any([signal, limits.deadline])));
          return await this.runOn(opened, (client) =>
            runInScope({ ...limits, elicit, timeoutMs }, (options) => request(client, options)),
          );
        } catch (error) {
          await this.handleFailure(error, { ...limits, opened, attempt });
        }
      }
    } finally {
      this.running -= 1;
    }
  }

  private async runOn<T>(opened: Opened, work: (client: Client) => Promise<T>): Promise<T> {
    opened.running += 1;
    try {
      return await work(opened.client);
    } finally {
      opened.running -= 1;
      this.closeIfUnused(opened);
    }
  }

  /** Returns if the request may be sent again, and otherwise throws the error for the model. */
  private async handleFailure(
    error: unknown,
    { turn, deadline, opened, attempt }: Failure,
  ): Promise<void> {
    turn.throwIfAborted();
    if (deadline.aborted) throw new Error(describeTimeout(this.name, this.server.timeoutMs));
    if (error instanceof TooLargeError) throw new Error(`${this.name} ${error.message}`);
    await this.throwIfAnswered(error);
    const wait = RETRY_DELAYS_MS[attempt];
    const isRetry = attempt > 0 && readStatus(error) !== undefined;
    if (neverRan(error, opened) && wait !== undefined && !isRetry) {
      if (opened) this.disconnect(opened, error);
      await delay(wait, undefined, { signal: AbortSignal.any([turn, deadline]) }).catch(() => {
        turn.throwIfAborted();
        throw new Error(`${this.name} cannot be reached; try again later`);
      });
      return;
    }
    // The cause may contain internal addresses, so it goes to the log only.
    this.logger.warn({ err: error, server: this.name }, 'MCP request failed');
    if (!opened) throw new Error(`${this.name} cannot be reached; try again later`);
    await this.closeIfUnreachable(opened, error);
    throw new Error(
      `${this.name} cannot be reached, or sent an invalid answer; whether the call had an effect is unknown`,
    );
  }

  /** Throws errors that the server itself reports, and those that a repetition cannot fix. */
  private async throwIfAnswered(error: unknown): Promise<void> {
    const { ProtocolError } = await loadSdk();
    if (error instanceof ProtocolError) throw new Error(error.message);
    if (this.target.auth && isUnauthorized(error)) throw new SignInRequiredError(this.name);
  }

  /** Concurrent turns share one attempt. */
  private open(): Promise<Opened> {
    if (this.isClosed || performance.now() < this.retryAt) {
      const cause = this.lastError;
      if (isUnauthorized(cause)) return Promise.reject(new SignInRequiredError(this.name));
      return Promise.reject(new UnreachableError(this.name, { cause }));
    }
    if (!this.opening) {
      this.openingSince = performance.now();
      this.opening = this.connect().finally(() => {
        this.opening = undefined;
      });
    }
    return this.opening;
  }

  private async connect(): Promise<Opened> {
    const startedAt = performance.now();
    let client: Client | undefined;
    let lost: Error | undefined;
    const onLost = (error: Error) => {
      lost = error;
      if (!this.opened || this.opened.client !== client) return;
      this.disconnect(this.opened, error);
      setTimeout(() => client?.close().catch(() => undefined), STREAM_END_MS).unref();
    };
    try {
      client = await openClient(this.target, { onToolsChanged: () => this.refresh(), onLost });
      const tools = await this.listTools(client, this.server.timeoutMs);
      if (lost) throw lost;
      this.opened = { client, tools, listedAt: performance.now(), running: 0 };
      this.lastError = undefined;
      return this.opened;
    } catch (error) {
      client?.close().catch(() => undefined);
      const backoff = Math.min(BACKOFF_FACTOR * (performance.now() - startedAt), MAX_BACKOFF_MS);
      this.retryAt = performance.now() + backoff;
      // The server fails at every use until it is back: one line is enough.
      if (this.lastError === undefined)
        this.logger.warn({ err: error, server: this.name }, 'MCP server not available');
      this.lastError = error;
      if (isUnauthorized(error)) throw new SignInRequiredError(this.name, { cause: error });
      throw new UnreachableError(this.name, { cause: error });
    }
  }

  /** Runs in the background, once at a time; a failure closes the connection. */
  private refresh(): void {
    this.isListStale = true;
    // The change may be reported during a call, to which the list does not belong.
    this.refreshing ??= currentCall
      .exit(() => this.readList())
      .finally(() => {
        this.refreshing = undefined;
      });
  }

  private async readList(): Promise<void> {
    const { opened } = this;
    while (opened && this.isListStale) {
      this.isListStale = false;
      try {
        const tools = await this.listTools(opened.client, this.server.timeoutMs);
        Object.assign(opened, { tools, listedAt: performance.now() });
      } catch (error) {
        this.disconnect(opened, error);
      }
    }
  }

  /** An invalid answer affects one call; a server that does not answer loses its connection. */
  private async closeIfUnreachable(opened: Opened, cause: unknown): Promise<void> {
    const timeoutMs = Math.min(this.server.timeoutMs, PROBE_MS);
    await this.listTools(opened.client, timeoutMs).catch(() => this.disconnect(opened, cause));
  }

  /** The next use opens a new connection. */
  private disconnect(opened: Opened, error: unknown): void {
    if (this.opened !== opened) return;
    this.opened = undefined;
    this.closeIfUnused(opened);
    this.logger.info({ err: error, server: this.name }, 'connection to an MCP server lost');
  }

  private closeIfUnused(opened: Opened): void {
    if (this.opened === opened || opened.running > 0) return;
    opened.client.close().catch(() => undefined);
  }

  private async listTools(client: Client, timeout: number): Promise<McpTool[]> {
    const tools: McpTool[] = [];
    if (!client.getServerCapabilities()?.tools) return tools;
    let length = 0;
    let cursor: string | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      const params = cursor ? { cursor } : {};
      const listed = await client.request({ method: 'tools/list', params }, { timeout });
      for (const tool of listed.tools) {
        length += JSON.stringify(tool).length;
        if (length > this.maxListLength) return tools;
        tools.push(tool);
      }
      cursor = listed.nextCursor;
      if (!cursor) break;
    }
    return tools;
  }
}

const END_SESSION_MS = 1000;

/** Ends the session at a server that keeps sessions. */
async function endSession(client: Client): Promise<void> {
  const { transport } = client;
  if (transport && 'terminateSession' in transport) {
    const { terminateSession } = transport;
    const limit = { ms: END_SESSION_MS, message: 'it does not answer' };
    if (typeof terminateSession === 'function')
      await withTimeout(limit, async () => terminateSession.call(transport)).catch(() => undefined);
  }
  await client.close();
}

interface Failure {
  readonly turn: AbortSignal;
  readonly deadline: AbortSignal;
  /** The connection that carried the request; undefined if none could be opened. */
  readonly opened: Opened | undefined;
  readonly attempt: number;
}

/** No connection could be opened; the cause is for the log. */
class UnreachableError extends Error {
  override readonly name = 'UnreachableError';

  constructor(server: string, options: ErrorOptions) {
    super(`${server} cannot be reached; try again later`, options);
  }
}

/** The server sent more than it may; calling it again in the same way fails again. */
class TooLargeError extends Error {
  override readonly name = 'TooLargeError';

  constructor() {
    super(TOO_LARGE);
  }
}

const describeTimeout = (name: string, timeoutMs: number) =>
  `${name} did not answer within ${timeoutMs / 1000} s; whether the call had an effect is unknown`;

/** Errors of sockets that were never connected. */
const UNCONNECTED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);

/** Whether a request certainly did not reach a tool, so that it may be sent again. */
function neverRan(error: unknown, opened: Opened | undefined): boolean {
  if (!opened) return error instanceof UnreachableError;
  if (error instanceof SafeFetchError) {
    const { cause } = error;
    const reason = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    return error.code === 'busy' || (error.code === 'network' && UNCONNECTED.has(reason));
  }
  // The session is unknown to a server that was restarted; some answer 400 instead of 404.
  const status = readStatus(error);
  if (status === 404 || status === 400) return true;
  return error instanceof Error && 'code' in error && error.code === 'NOT_CONNECTED';
}

function isUnauthorized(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof SignInRequiredError || error.name === 'InsufficientScopeError') return true;
  return error.name === 'UnauthorizedError' || readStatus(error) === 401;
}

interface ScopeOptions {
  readonly turn: AbortSignal;
  readonly deadline: AbortSignal;
  readonly elicit: RequestScope['elicit'];
  readonly timeoutMs: number;
}

/** Runs a request so that aborting it cancels it on the server, too. */
async function runInScope<T>(
  { turn, deadline, elicit, timeoutMs }: ScopeOptions,
  request: (options: RequestOptions) => Promise<T>,
): Promise<T> {
  const lost = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const scope = {
    elicit: elicit ?? (async () => ({ action: 'decline' as const })),
    onStreamEnd: () => {
      timer ??= setTimeout(() => lost.abort(new Error('The reply ended early')), STREAM_END_MS);
    },
    onTooLarge: () => lost.abort(new TooLargeError()),
  };
  const signal = AbortSignal.any([turn, deadline, lost.signal]);
  try {
    // The signal ends the request; the SDK's own limit must not come first.
    return await currentCall.run(scope, () => request({ signal, timeout: timeoutMs + 10_000 }));
  } catch (error) {
    // A reply that announces its length fails before its body.
    if (error instanceof SafeFetchError && error.code === 'too_large') throw new TooLargeError();
    throw lost.signal.reason instanceof TooLargeError ? lost.signal.reason : error;
  } finally {
    clearTimeout(timer);
  }
}
