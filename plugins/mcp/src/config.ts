import { z } from 'zod';

const TIMEOUT_MS = 30_000;

const shared = {
  /** How long connecting, listing or one call may take. */
  timeoutMs: z.int().min(100).max(600_000).default(TIMEOUT_MS),
  /** Tools that need an invocation of the user: all, or those named. */
  protected: z.union([z.boolean(), z.array(z.string().min(1))]).default(false),
};

const HttpServer = z.strictObject({
  url: z.url({ protocol: /^https?$/ }),
  headers: z.record(z.string(), z.string()).default({}),
  ...shared,
});

const StdioServer = z.strictObject({
  command: z.string().min(1),
  args: z.array(z.string()).default([]),
  env: z.record(z.string(), z.string()).default({}),
  ...shared,
});

/** An MCP server of the operator: reached over HTTP, or started as a process. */
export const McpServer = z.union([HttpServer, StdioServer]);
export type McpServer = z.output<typeof McpServer>;

/** Short, so that most tool names fit behind it. */
const ServerName = z.string().regex(/^[a-z0-9][a-z0-9-]{0,23}$/, 'a-z, 0-9 and -, at most 24');

/** Name → server, as the variable MCP_SERVERS holds them. */
export const McpServers = z.record(ServerName, McpServer);
export type McpServers = z.output<typeof McpServers>;

/** Whether calls of this tool need an invocation of the user. */
export function isProtected(server: McpServer, tool: string): boolean {
  return server.protected === true || (server.protected || []).includes(tool);
}

/** The plugin's environment variables. */
export const McpConfig = z.object({
  MCP_SERVERS: z
    .string()
    .transform((text, context) => {
      try {
        return JSON.parse(text);
      } catch (error) {
        context.addIssue({
          code: 'custom',
          message: `is not JSON: ${error instanceof Error ? error.message : error}`,
        });
        return z.NEVER;
      }
    })
    .pipe(McpServers)
    .describe(
      'JSON: name → `{"url": …, "headers"?}` or `{"command": …, "args"?, "env"?}`, each with `timeoutMs`? and `protected`? (true, or names of tools that need an invocation of the user)',
    ),
});
