import { z } from 'zod';

const TIMEOUT_MS = 30_000;

const shared = {
  /** How long connecting, listing or one call may take. */
  timeoutMs: z.int().min(100).max(600_000).default(TIMEOUT_MS),
  /** Tools that need an invocation of the user: all, or those named. */
  protected: z.union([z.boolean(), z.array(z.string().min(1))]).default(false),
};

/** A client that the operator registered at the server's authorization server. */
const RegisteredClient = z.strictObject({
  clientId: z.string().min(1),
  clientSecret: z.string().min(1).optional(),
  scope: z.string().min(1).optional(),
});

/** A server that is reached over HTTP. */
export const HttpServer = z.strictObject({
  url: z.url({ protocol: /^https?$/ }),
  headers: z.record(z.string(), z.string()).default({}),
  /** Each user signs in at the server; every user has a separate connection. */
  oauth: z.union([z.boolean(), RegisteredClient]).default(false),
  ...shared,
});
export type HttpServer = z.output<typeof HttpServer>;

const StdioServer = z.strictObject({
  command: z.string().min(1),
  args: z.array(z.string()).default([]),
  env: z.record(z.string(), z.string()).default({}),
  ...shared,
});

/** An MCP server: reached over HTTP, or started as a process. */
export const McpServer = z.union([HttpServer, StdioServer]);
export type McpServer = z.output<typeof McpServer>;

/** Short, so that most tool names fit behind it. */
export const ServerName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,23}$/, 'a-z, 0-9 and -, at most 24');

/** Name → server, as the variable MCP_SERVERS holds them. */
export const McpServers = z.record(ServerName, McpServer);
export type McpServers = z.output<typeof McpServers>;

/** Whether calls of this tool need an invocation of the user. */
export function isProtected(server: McpServer, tool: string): boolean {
  return server.protected === true || (server.protected || []).includes(tool);
}

/** Whether each user signs in at this server. */
export const needsSignIn = (server: McpServer): server is HttpServer =>
  'oauth' in server && server.oauth !== false;

/** The plugin's environment variables. */
export const McpConfig = z.object({
  MCP_SERVERS: z
    .string()
    .transform(readJson)
    .pipe(McpServers)
    .prefault('{}')
    .describe(
      'JSON: name → `{"url": …, "headers"?, "oauth"?}` or `{"command": …, "args"?, "env"?}`, each with `timeoutMs`? and `protected`? (true, or names of tools that need an invocation of the user)',
    ),
  MCP_USER_SERVERS: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .transform((value) => value === 'true')
    .prefault('false')
    .describe('Whether users may add MCP servers, each for their turns only'),
  MCP_SERVERS_PER_USER: z
    .string()
    .regex(/^[1-9]\d?$/, { error: 'must be a whole number from 1 to 99' })
    .transform(Number)
    .prefault('10')
    .describe('How many servers a user may add'),
  MCP_USER_SERVERS_ALLOW: z
    .string()
    .transform((text) => text.split(',').flatMap((entry) => entry.trim() || []))
    .prefault('')
    .describe(
      'Addresses beyond the public internet at which users may add servers: host, host:port or CIDR, separated by commas; `OUTGOING_ALLOW` does not open any to them',
    ),
});
export type McpConfig = z.output<typeof McpConfig>;

function readJson(text: string, context: z.RefinementCtx): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const message = `is not JSON: ${error instanceof Error ? error.message : error}`;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  }
}
