import { z } from 'zod';
import { McpServers } from './server-config.js';

/** The variables of the plugin. */
export const McpConfig = z.object({
  MCP_SERVERS: z
    .string()
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown;
      } catch (error) {
        context.addIssue({ code: 'custom', message: `is not JSON: ${(error as Error).message}` });
        return z.NEVER;
      }
    })
    .pipe(McpServers)
    .describe(
      'JSON: name → `{"url": …, "headers"?}` or `{"command": …, "args"?, "env"?}`, each with `timeoutMs`? and `protected`? (true, or names of tools that need an invocation of the user)',
    ),
});
