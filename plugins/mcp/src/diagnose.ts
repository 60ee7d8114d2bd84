import type { Diagnosis, DiagnosisContext } from '@sibyl/plugin-kit';
import { type McpConfig, type McpServer, needsSignIn } from './config.js';
import { Connection, SignInRequiredError } from './connection.js';

/** Checks every server of the operator, for `sibyl doctor`. */
export const diagnoseServers = (
  context: DiagnosisContext<McpConfig>,
): Promise<readonly Diagnosis[]> =>
  Promise.all(
    Object.entries(context.config.MCP_SERVERS).map(async ([server, settings]) => ({
      name: `MCP server ${server}`,
      ...(await diagnose(server, settings, context)),
    })),
  );

async function diagnose(
  name: string,
  server: McpServer,
  context: DiagnosisContext<McpConfig>,
): Promise<Omit<Diagnosis, 'name'>> {
  const connection = new Connection({ name, server, context });
  try {
    const { length } = await connection.tools();
    return { ok: true, text: `${length} tool${length === 1 ? '' : 's'}` };
  } catch (error) {
    if (error instanceof SignInRequiredError) return describeSignIn(server);
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    return {
      ok: false,
      text: cause instanceof Error ? cause.message : String(cause),
      remedy:
        'url' in server
          ? 'Check the url and headers in MCP_SERVERS, and OUTGOING_ALLOW if it has a private address'
          : 'Check command, args and env in MCP_SERVERS; run the command to see its output',
    };
  } finally {
    await connection.close();
  }
}

function describeSignIn(server: McpServer): Omit<Diagnosis, 'name'> {
  if (needsSignIn(server)) return { ok: true, text: 'reachable; each user signs in' };
  return {
    ok: false,
    text: 'it requires authorization',
    remedy: 'Set "oauth": true, or an authorization header, in MCP_SERVERS',
  };
}
