import { randomBytes } from 'node:crypto';
import type {
  AuthProvider,
  OAuthClientInformationContext,
  OAuthClientMetadata,
  OAuthClientProvider,
  OAuthDiscoveryState,
  StoredOAuthClientInformation,
  StoredOAuthTokens,
} from '@modelcontextprotocol/client';
import { OracleError, type Secrets } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { HttpServer } from './config.js';
import { SignInRequiredError } from './connection.js';
import { loadSdk } from './open-client.js';

/** What a user granted at one server. Other fields of these objects belong to the SDK, which reads them again. */
export const Grant = z.object({
  /** The server's address: a grant is never used at another one. */
  url: z.string(),
  client: z.custom<StoredOAuthClientInformation>(isObject).optional(),
  tokens: z.custom<StoredOAuthTokens>(isObject).optional(),
  discovery: z.custom<OAuthDiscoveryState>(isObject).optional(),
  verifier: z.string().optional(),
});
export type Grant = z.infer<typeof Grant>;

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** Where a grant is kept. */
export interface GrantStore {
  read(): Promise<Grant | undefined>;
  write(grant: Grant): Promise<void>;
}

/** The name of the user's secret that holds the grant for a server. */
export const grantName = (server: string) => `grant:${server}`;

/** The grant of one user, as a secret. One for another address than the server has now does not count. */
export function createGrantStore(secrets: Secrets, server: string, url: string): GrantStore {
  return {
    read: async () => {
      const text = await readSecret(secrets, grantName(server));
      const grant = text === undefined ? undefined : Grant.parse(JSON.parse(text));
      return grant?.url === url ? grant : undefined;
    },
    write: (grant) => secrets.set(grantName(server), JSON.stringify(grant)),
  };
}

export const isKeyChanged = (error: unknown): error is OracleError =>
  error instanceof OracleError && error.code === 'key_changed';

/** A sign-in that cannot be read, because the oracle's key has changed, is none: the user signs in again. */
export const readSecret = (secrets: Secrets, name: string): Promise<string | undefined> =>
  secrets.get(name).catch((error) => {
    if (isKeyChanged(error)) return undefined;
    throw error;
  });

/** This host as an OAuth client. */
export interface OAuthClientFacts {
  readonly oracleName: string;
  readonly publicUrl: string;
}

export const CALLBACK_PATH = '/mcp/callback';
export const CLIENT_METADATA_PATH = '/mcp/client.json';

/** What an authorization server learns about this host, by registration or from its metadata document. */
export const describeClient = ({
  oracleName,
  publicUrl,
}: OAuthClientFacts): OAuthClientMetadata => ({
  client_name: oracleName,
  client_uri: publicUrl,
  redirect_uris: [`${publicUrl}${CALLBACK_PATH}`],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
});

export interface GrantProviderDeps {
  readonly name: string;
  readonly server: HttpServer;
  readonly store: GrantStore;
  readonly facts: OAuthClientFacts;
}

/** Lets the SDK use a grant. It never starts a sign-in. */
export class GrantProvider implements OAuthClientProvider {
  readonly redirectUrl: string;
  readonly clientMetadata: OAuthClientMetadata;
  /** Only https addresses can be client ids. */
  readonly clientMetadataUrl?: string;
  private readonly deps: GrantProviderDeps;
  private usedRefreshToken: string | undefined;

  constructor(deps: GrantProviderDeps) {
    this.deps = deps;
    const { publicUrl } = deps.facts;
    const { oauth } = deps.server;
    const scope = typeof oauth === 'object' ? oauth.scope : undefined;
    this.redirectUrl = `${publicUrl}${CALLBACK_PATH}`;
    this.clientMetadata = { ...describeClient(deps.facts), ...(scope && { scope }) };
    if (publicUrl.startsWith('https:'))
      this.clientMetadataUrl = `${publicUrl}${CLIENT_METADATA_PATH}`;
  }

  async clientInformation(): Promise<StoredOAuthClientInformation | undefined> {
    const { oauth } = this.deps.server;
    const stored = (await this.deps.store.read())?.client;
    if (typeof oauth !== 'object') return stored;
    const { clientId, clientSecret } = oauth;
    return {
      client_id: clientId,
      ...(clientSecret && { client_secret: clientSecret }),
      ...(stored?.issuer && { issuer: stored.issuer }),
    };
  }

  saveClientInformation(client: StoredOAuthClientInformation): Promise<void> {
    return this.change({ client });
  }

  async tokens(_context?: OAuthClientInformationContext): Promise<StoredOAuthTokens | undefined> {
    const tokens = (await this.deps.store.read())?.tokens;
    this.usedRefreshToken = tokens?.refresh_token;
    return tokens;
  }

  saveTokens(tokens: StoredOAuthTokens): Promise<void> {
    return this.change({ tokens });
  }

  redirectToAuthorization(_url: URL): void {
    throw new SignInRequiredError(this.deps.name);
  }

  saveCodeVerifier(verifier: string): Promise<void> {
    return this.change({ verifier });
  }

  async codeVerifier(): Promise<string> {
    const verifier = (await this.deps.store.read())?.verifier;
    if (verifier === undefined) throw new Error('No sign-in is in progress');
    return verifier;
  }

  /** Only where the server was found: its metadata may be large, and is read again. */
  saveDiscoveryState(state: OAuthDiscoveryState): Promise<void> {
    const { authorizationServerUrl, resourceMetadataUrl } = state;
    const discovery = {
      authorizationServerUrl,
      ...(resourceMetadataUrl && { resourceMetadataUrl }),
    };
    return this.change({ discovery });
  }

  async discoveryState(): Promise<OAuthDiscoveryState | undefined> {
    return (await this.deps.store.read())?.discovery;
  }

  async invalidateCredentials(
    scope: 'all' | 'client' | 'tokens' | 'verifier' | 'discovery',
  ): Promise<void> {
    const has = (part: typeof scope) => scope === 'all' || scope === part;
    const stored = (await this.deps.store.read())?.tokens;
    // Another host may have refreshed the token in the meantime: its new one is valid.
    const isStale = stored?.refresh_token === this.usedRefreshToken;
    await this.change({
      ...(has('client') && { client: undefined }),
      ...(has('tokens') && isStale && { tokens: undefined }),
      ...(has('verifier') && { verifier: undefined }),
      ...(has('discovery') && { discovery: undefined }),
    });
  }

  private async change(changed: Omit<Partial<Grant>, 'url'>) {
    const { store } = this.deps;
    const grant = await store.read();
    // The user may have signed out while a token was being refreshed.
    if (grant) await store.write({ ...grant, ...changed });
  }
}

/** Signs a user in: collects what the flow produces, and the address that the user has to open. */
export class SignInProvider extends GrantProvider {
  /** Proves that the callback belongs to this sign-in. */
  readonly stateParameter = randomBytes(32).toString('base64url');
  authorizationUrl: URL | undefined;

  state(): string {
    return this.stateParameter;
  }

  override redirectToAuthorization(url: URL): void {
    this.authorizationUrl = url;
  }
}

/** Sends the user's token with each request, and refreshes it when the server rejects it. */
export function createAuthProvider(deps: GrantProviderDeps): AuthProvider {
  const provider = new GrantProvider(deps);
  let refreshing: Promise<void> | undefined;
  const refresh = async ({ response, serverUrl, fetchFn }: Unauthorized) => {
    // Without a grant the user has to sign in first.
    if (!(await deps.store.read())?.tokens) throw new SignInRequiredError(deps.name);
    const { auth, extractWWWAuthenticateParams } = await loadSdk();
    const { resourceMetadataUrl, scope } = extractWWWAuthenticateParams(response);
    await auth(provider, {
      serverUrl,
      fetchFn,
      ...(resourceMetadataUrl && { resourceMetadataUrl }),
      ...(scope && { scope }),
    });
  };
  return {
    token: async () => (await deps.store.read())?.tokens?.access_token,
    // A refresh token may be valid once, so concurrent calls share one refresh.
    onUnauthorized: (context) => {
      refreshing ??= refresh(context).finally(() => {
        refreshing = undefined;
      });
      return refreshing;
    },
  };
}

type Unauthorized = Parameters<NonNullable<AuthProvider['onUnauthorized']>>[0];
