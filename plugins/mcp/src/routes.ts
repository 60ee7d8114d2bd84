import { Controller, type DynamicModule, Get, Inject, Module, Query, Res } from '@nestjs/common';
import {
  Describe,
  defineRoute,
  OracleError,
  RateLimiter,
  type Route,
  SafeFetchError,
  withTimeout,
} from '@sibyl/plugin-kit';
import { z } from 'zod';
import { needsSignIn, ServerName } from './config.js';
import { SignInRequiredError, SLOW_MS } from './connection.js';
import { CLIENT_METADATA_PATH, describeClient, isKeyChanged } from './grant.js';
import type { ServerAccess, ServerDirectory } from './server-directory.js';
import type { SignIns } from './sign-ins.js';
import { AddServer, nameTaken, toHttpServer, type UserServers } from './user-servers.js';

export interface RoutesDeps {
  readonly directory: ServerDirectory;
  readonly signIns: SignIns;
  /** Undefined if users may not add servers. */
  readonly users: UserServers | undefined;
}

/** Each one connects to an address that the user chose. */
const ADDITIONS_PER_MINUTE = 10;
const PROBE_MS = 15_000;

const ServerState = z.enum(['ready', 'sign_in_required', 'unavailable']);

const ServerStatus = z
  .object({
    name: z.string(),
    /** The operator's servers are on internal addresses often, so theirs are not shown. */
    url: z.string().optional().describe('Address of a server that the caller added'),
    own: z.boolean().describe('Whether the caller added it'),
    state: ServerState,
    tools: z.number().optional().describe('Number of its tools'),
    problem: z.string().optional().describe('Why it is unavailable, if the caller can change that'),
  })
  .meta({ id: 'McpServerStatus' });
type ServerStatus = z.infer<typeof ServerStatus>;

const ServerList = z.object({ servers: z.array(ServerStatus) }).meta({ id: 'McpServerList' });
const Done = z.object({ ok: z.literal(true) }).meta({ id: 'McpDone' });
const SignInStarted = z
  .object({
    url: z.string().describe('The user has to open it in a browser'),
    expiresAt: z.number().describe('Milliseconds since 1970'),
  })
  .meta({ id: 'McpSignInStarted' });
const SignInCode = z
  .strictObject({ code: z.string().min(1).max(100).describe('The code that the page showed') })
  .meta({ id: 'McpSignInCode' });
const ByName = z.object({ name: ServerName });

export const listRoutes = (deps: RoutesDeps): Route[] => [
  defineRoute({
    method: 'GET',
    path: '/mcp/servers',
    summary: 'The MCP servers that the caller can use',
    reply: ServerList,
    handler: async ({ caller }) => {
      const servers = await deps.directory.list(caller.did);
      return { servers: await Promise.all(servers.map(describeAccess)) };
    },
  }),
  ...(deps.users ? listUserServerRoutes({ ...deps, users: deps.users }) : []),
  ...listSignInRoutes(deps),
  defineRoute({
    method: 'GET',
    path: CLIENT_METADATA_PATH,
    auth: 'public',
    summary: 'This host as an OAuth client, for authorization servers',
    reply: z.record(z.string(), z.unknown()),
    handler: () => {
      const { facts } = deps.directory;
      return { client_id: `${facts.publicUrl}${CLIENT_METADATA_PATH}`, ...describeClient(facts) };
    },
  }),
];

async function describeAccess(access: ServerAccess): Promise<ServerStatus> {
  const { name, server, isOwn } = access;
  const known = { name, own: isOwn, ...(isOwn && 'url' in server && { url: server.url }) };
  try {
    const tools = await withTimeout({ ms: SLOW_MS, message: 'it does not answer' }, async () =>
      (await access.connect()).tools(),
    );
    return { ...known, state: 'ready', tools: tools.length };
  } catch (error) {
    const needsUser = error instanceof SignInRequiredError && needsSignIn(server);
    if (needsUser) return { ...known, state: 'sign_in_required' };
    return {
      ...known,
      state: 'unavailable',
      ...(isKeyChanged(error) && { problem: error.message }),
    };
  }
}

function listUserServerRoutes({
  directory,
  signIns,
  users,
}: RoutesDeps & { readonly users: UserServers }): Route[] {
  const additions = new RateLimiter({ maxBytes: 1024 ** 2 });
  return [
    defineRoute({
      method: 'POST',
      path: '/mcp/servers',
      summary: 'Adds an MCP server that only the caller can use',
      needsOwnKey: true,
      status: 201,
      body: AddServer,
      reply: ServerStatus,
      errors: ['bad_request', 'rate_limited'],
      handler: async ({ caller: { did }, body }) => {
        const { allowed, resetSeconds } = additions.take(did, ADDITIONS_PER_MINUTE);
        if (!allowed) throw new OracleError('rate_limited', { retryAfterSeconds: resetSeconds });
        if (directory.isOperatorServer(body.name)) throw nameTaken(body.name);
        const state = await probeServer(directory, did, body);
        await users.add(did, body);
        // It may have been connected without its headers.
        directory.disconnect(did, body.name);
        return { name: body.name, url: body.url, own: true, state };
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/mcp/servers/:name',
      summary: 'Removes a server that the caller added, with its sign-in',
      needsOwnKey: true,
      params: ByName,
      reply: Done,
      errors: ['not_found'],
      handler: async ({ caller: { did }, params: { name } }) => {
        if (!(await users.remove(did, name))) throw noSuchServer(name);
        if (!directory.isOperatorServer(name)) {
          await signIns.remove(did, name);
          directory.disconnect(did, name);
        }
        return { ok: true as const };
      },
    }),
  ];
}

/** A server that cannot be reached is not added. */
async function probeServer(directory: ServerDirectory, owner: string, added: AddServer) {
  try {
    const server = toHttpServer(added);
    await withTimeout({ ms: PROBE_MS, message: 'it does not answer' }, () =>
      directory.probe(owner, { name: added.name, server }),
    );
    return 'ready' as const;
  } catch (error) {
    if (error instanceof SignInRequiredError) return 'sign_in_required' as const;
    // These messages are made for strangers; others may contain addresses.
    const cause = findSafeFetchError(error);
    const detail = cause ? ` ${cause.message}` : '';
    throw new OracleError('bad_request', {
      message: `No MCP server answers at this address over streamable HTTP or server-sent events.${detail}`,
    });
  }
}

function findSafeFetchError(error: unknown): SafeFetchError | undefined {
  if (error instanceof SafeFetchError) return error;
  return error instanceof Error && error.cause ? findSafeFetchError(error.cause) : undefined;
}

function listSignInRoutes({ directory, signIns }: RoutesDeps): Route[] {
  const findTarget = async (owner: string, name: string) => {
    const target = await directory.findSignInTarget(owner, name);
    if (!target) throw noSuchServer(name);
    return target;
  };
  return [
    defineRoute({
      method: 'POST',
      path: '/mcp/servers/:name/sign-in',
      summary: 'Starts a sign-in at an MCP server',
      needsOwnKey: true,
      params: ByName,
      reply: SignInStarted,
      errors: ['bad_request', 'not_found', 'key_changed', 'rate_limited'],
      handler: async ({ caller, params }) =>
        signIns.start(await findTarget(caller.did, params.name)),
    }),
    defineRoute({
      method: 'POST',
      path: '/mcp/servers/:name/sign-in/confirm',
      summary: 'Finishes a sign-in with the code that the page showed',
      needsOwnKey: true,
      params: ByName,
      body: SignInCode,
      reply: Done,
      errors: ['bad_request', 'not_found', 'key_changed'],
      handler: async ({ caller, params, body }) => {
        await signIns.confirm(await findTarget(caller.did, params.name), body.code);
        directory.disconnect(caller.did, params.name);
        return { ok: true as const };
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: '/mcp/servers/:name/sign-in',
      summary: "Forgets the caller's sign-in at an MCP server",
      needsOwnKey: true,
      params: ByName,
      reply: Done,
      errors: ['not_found', 'key_changed'],
      handler: async ({ caller, params }) => {
        const { owner, name } = await findTarget(caller.did, params.name);
        await signIns.remove(owner, name);
        directory.disconnect(owner, name);
        return { ok: true as const };
      },
    }),
  ];
}

const noSuchServer = (name: string) =>
  new OracleError('not_found', { message: `There is no server named ${name}` });

const SIGN_INS = Symbol('sign-ins');

interface HtmlResponse {
  setHeader(name: string, value: string): void;
  status(code: number): HtmlResponse;
  end(body: string): void;
}

const CallbackQuery = z.record(z.string(), z.string().max(4000));

/** The page to which authorization servers send the user back. */
@Controller('mcp')
class CallbackController {
  constructor(@Inject(SIGN_INS) private readonly signIns: SignIns) {}

  @Get('callback')
  @Describe({
    summary: 'Receives the user from the authorization server of an MCP server',
    mediaTypes: ['text/html'],
    errors: ['validation_failed'],
  })
  async receive(
    @Query({ schema: CallbackQuery }) query: z.infer<typeof CallbackQuery>,
    @Res() response: HtmlResponse,
  ): Promise<void> {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.setHeader('Cache-Control', 'no-store');
    response.setHeader('Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'");
    response.setHeader('Referrer-Policy', 'no-referrer');
    try {
      const { server, code } = await this.signIns.receiveCallback(query);
      const text = `To finish, send this code to the oracle in your chat:</p><p><strong><code>${code}</code></strong></p><p>If you did not start this sign-in yourself, close this page and do not share the code.`;
      response.status(200).end(renderPage(`Almost signed in at ${server}`, text));
    } catch (error) {
      if (!(error instanceof OracleError)) throw error;
      const text = escapeHtml(`${error.message}. Close this page and start the sign-in again.`);
      response.status(400).end(renderPage('The sign-in failed', text));
    }
  }
}

const renderPage = (title: string, html: string) =>
  `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escapeHtml(title)}</title><h1>${escapeHtml(title)}</h1><p>${html}</p></html>`;

const escapeHtml = (text: string) => text.replaceAll(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

@Module({})
class CallbackModule {}

export const createCallbackModule = (signIns: SignIns): DynamicModule => ({
  module: CallbackModule,
  controllers: [CallbackController],
  providers: [{ provide: SIGN_INS, useValue: signIns }],
});
