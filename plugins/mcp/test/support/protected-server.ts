import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import {
  InvalidGrantError,
  InvalidTokenError,
} from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import type { OAuthServerProvider } from '@modelcontextprotocol/sdk/server/auth/provider.js';
import {
  getOAuthProtectedResourceMetadataUrl,
  mcpAuthRouter,
} from '@modelcontextprotocol/sdk/server/auth/router.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { OAuthClientInformationFull } from '@modelcontextprotocol/sdk/shared/auth.js';
import { createDemoServer } from './demo-server.ts';

export interface ProtectedServer {
  readonly url: string;
  /** What its tools were asked. */
  readonly calls: unknown[];
  /** Who registered, by DCR or with a metadata document. */
  readonly clients: ReadonlyMap<string, OAuthClientInformationFull>;
  /** How often a token was refreshed. */
  readonly refreshes: number;
  /** The tokens that requests carried. */
  readonly seen: ReadonlySet<string>;
  /** Ends all access tokens; with `revoke`, the refresh tokens too. */
  expire(options?: { readonly revoke?: boolean }): void;
  close(): Promise<void>;
}

interface ProtectedServerOptions {
  /** Reads a client's metadata document; without it, clients have to register. */
  readonly readClient?: (url: string) => Promise<OAuthClientInformationFull>;
}

/** An MCP server with its own authorization server, which approves everyone who opens its page. */
export async function startProtectedServer({
  readClient,
}: ProtectedServerOptions = {}): Promise<ProtectedServer> {
  const app = createMcpExpressApp();
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const origin = new URL(`http://127.0.0.1:${port}`);
  const resource = new URL('/mcp', origin);
  const calls: unknown[] = [];
  const state = new TokenState(readClient);
  // Announces that client ids may be addresses, which this router cannot.
  if (readClient)
    app.use('/.well-known/oauth-authorization-server', (_request, response, next) => {
      const send = response.json.bind(response);
      response.json = (body) => send({ ...body, client_id_metadata_document_supported: true });
      next();
    });
  app.use(mcpAuthRouter({ provider: state, issuerUrl: origin, resourceServerUrl: resource }));
  const guard = requireBearerAuth({
    verifier: state,
    resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(resource),
  });
  app.all('/mcp', guard, async (request, response) => {
    const transport = new StreamableHTTPServerTransport({});
    response.on('close', () => void transport.close());
    await createDemoServer(calls).connect(transport as never);
    await transport.handleRequest(request, response, request.body);
  });
  return {
    url: resource.href,
    calls,
    clients: state.clients,
    get refreshes() {
      return state.refreshes;
    },
    seen: state.seen,
    expire: ({ revoke = false } = {}) => {
      state.access.clear();
      if (revoke) state.refresh.clear();
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

class TokenState implements OAuthServerProvider {
  readonly clients = new Map<string, OAuthClientInformationFull>();
  readonly codes = new Map<string, string>();
  readonly access = new Map<string, string>();
  /** Each is valid once. */
  readonly refresh = new Map<string, string>();
  readonly seen = new Set<string>();
  refreshes = 0;

  constructor(private readonly readClient: ProtectedServerOptions['readClient']) {}

  readonly clientsStore = {
    getClient: async (id: string) => {
      if (this.readClient && id.startsWith('https:') && !this.clients.has(id))
        this.clients.set(id, await this.readClient(id));
      return this.clients.get(id);
    },
    registerClient: (client: object) => {
      const registered = { client_id: randomUUID(), ...client } as OAuthClientInformationFull;
      this.clients.set(registered.client_id, registered);
      return registered;
    },
  };

  authorize: OAuthServerProvider['authorize'] = async (_client, params, response) => {
    const code = randomUUID();
    this.codes.set(code, params.codeChallenge);
    const target = new URL(params.redirectUri);
    target.searchParams.set('code', code);
    if (params.state) target.searchParams.set('state', params.state);
    response.redirect(target.href);
  };

  async challengeForAuthorizationCode(_client: unknown, code: string) {
    return this.codes.get(code) ?? '';
  }

  async exchangeAuthorizationCode({ client_id }: OAuthClientInformationFull, code: string) {
    if (!this.codes.delete(code)) throw new InvalidTokenError('unknown code');
    return this.issue(client_id);
  }

  async exchangeRefreshToken({ client_id }: OAuthClientInformationFull, token: string) {
    if (this.refresh.get(token) !== client_id) throw new InvalidGrantError('unknown refresh token');
    this.refresh.delete(token);
    this.refreshes += 1;
    return this.issue(client_id);
  }

  async verifyAccessToken(token: string) {
    this.seen.add(token);
    const clientId = this.access.get(token);
    if (!clientId) throw new InvalidTokenError('expired');
    return { token, clientId, scopes: [], expiresAt: Math.floor(Date.now() / 1000) + 3600 };
  }

  private issue(clientId: string) {
    const [access, refresh] = [randomUUID(), randomUUID()];
    this.access.set(access, clientId);
    this.refresh.set(refresh, clientId);
    return { access_token: access, token_type: 'bearer', expires_in: 3600, refresh_token: refresh };
  }
}
