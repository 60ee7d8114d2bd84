import { createHash, randomInt, timingSafeEqual } from 'node:crypto';
import {
  type Logger,
  OracleError,
  type PluginDatabase,
  RateLimiter,
  type SafeFetch,
  type Secrets,
} from '@sibyl/plugin-kit';
import { bigint, defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { z } from 'zod';
import type { HttpServer } from './config.js';
import {
  createGrantStore,
  Grant,
  type GrantStore,
  grantName,
  type OAuthClientFacts,
  readSecret,
  SignInProvider,
} from './grant.js';
import { fetchDocument, loadSdk, openClient } from './open-client.js';

/** How long the user has to open the address, and then to enter the code. */
const SIGN_IN_MINUTES = 15;
const SIGN_IN_MS = SIGN_IN_MINUTES * 60_000;
/** Each one makes requests to the server and may register a client there. */
const SIGN_INS_PER_MINUTE = 5;

/** A server at which a user signs in. */
export interface SignInTarget {
  readonly owner: string;
  readonly name: string;
  readonly server: HttpServer;
  readonly fetch: SafeFetch;
}

interface SignInsDeps {
  readonly database: PluginDatabase<SignInTables>;
  readonly secrets: (owner: string) => Secrets;
  readonly facts: OAuthClientFacts;
  readonly logger: Logger;
  /** Finds the server that a sign-in was started for, unless it was removed. */
  readonly findTarget: (owner: string, name: string) => Promise<SignInTarget | undefined>;
}

export const signIns = defineTable(
  'mcp_sign_ins',
  { owner: text(), server: text(), state_hash: text(), expires_at: bigint() },
  {
    key: ['owner', 'server'],
    indexes: { mcp_sign_ins_by_state: { on: ['state_hash'], isUnique: true } },
  },
);

type SignInTables = TableTypes<readonly [typeof signIns]>;

/** A sign-in in progress; with tokens once the user has returned from the authorization server. */
const PendingGrant = Grant.extend({
  codeHash: z.string().optional(),
  expiresAt: z.number(),
});

const pendingName = (server: string) => `sign-in:${server}`;
const hash = (text: string) => createHash('sha256').update(text).digest('base64url');

/**
 * Signs users in at MCP servers (OAuth 2.1). The callback comes from a browser that proves no identity: a user could
 * send the address of a sign-in to another person and receive that person's grant. Therefore the callback shows
 * a code, and only the user who started the sign-in can finish it, with that code.
 */
export class SignIns {
  private readonly starts = new RateLimiter({ maxBytes: 1024 ** 2 });

  constructor(private readonly deps: SignInsDeps) {}

  /** Starts a sign-in; returns the address that the user has to open. */
  async start(target: SignInTarget): Promise<{ readonly url: string; readonly expiresAt: number }> {
    const { owner, name, server } = target;
    const { allowed, resetSeconds } = this.starts.take(owner, SIGN_INS_PER_MINUTE);
    if (!allowed)
      throw new OracleError('rate_limited', {
        message: 'Too many sign-ins; try again in a minute',
        retryAfterSeconds: resetSeconds,
      });
    const { secrets, facts } = this.deps;
    // A client that was registered before is used again.
    const earlier = await createGrantStore(secrets(owner), name, server.url).read();
    const store = createMemoryStore({
      url: server.url,
      ...(earlier?.client && { client: earlier.client }),
    });
    const provider = new SignInProvider({ name, server, facts, store });
    const url = await this.discover(target, provider);
    const expiresAt = this.deps.database.now() + SIGN_IN_MS;
    await this.savePending(target, { ...store.grant, expiresAt });
    await this.deps.database.write(async (tables) => {
      await tables
        .deleteFrom('mcp_sign_ins')
        .where('expires_at', '<', this.deps.database.now())
        .execute();
      const row = {
        owner,
        server: name,
        state_hash: hash(provider.stateParameter),
        expires_at: expiresAt,
      };
      await tables
        .insertInto('mcp_sign_ins')
        .values(row)
        .onConflict((conflict) => conflict.columns(['owner', 'server']).doUpdateSet(row))
        .execute();
    });
    return { url, expiresAt };
  }

  /** Connects without a token: the server's refusal says where to sign in. */
  private async discover(target: SignInTarget, provider: SignInProvider): Promise<string> {
    const { name, server, fetch } = target;
    const { logger } = this.deps;
    const events = { onToolsChanged: () => undefined, onLost: () => undefined };
    try {
      const attempt = { name, server, fetch, logger, auth: provider, isOwned: true };
      const client = await openClient(attempt, events);
      await client.close();
    } catch (err) {
      const url = provider.authorizationUrl;
      if (url && isOpenable(url)) return url.href;
      logger.warn({ err, server: name }, 'a sign-in at an MCP server could not be started');
      throw new OracleError('bad_request', {
        message: `${name} does not offer a sign-in that this host understands (OAuth 2.1 with PKCE), or cannot be reached`,
      });
    }
    throw new OracleError('bad_request', { message: `${name} needs no sign-in` });
  }

  /** Exchanges the code of the authorization server; returns the server's name and the code for the user. */
  async receiveCallback(
    query: Readonly<Record<string, string>>,
  ): Promise<{ readonly server: string; readonly code: string }> {
    const signIn = await this.takeState(query.state ?? '');
    if (!signIn) throw new OracleError('bad_request', { message: 'This sign-in has expired' });
    const { owner, server: name } = signIn;
    const target = await this.deps.findTarget(owner, name);
    const pending = await this.readPending(owner, name);
    if (!target || pending?.url !== target.server.url)
      throw new OracleError('bad_request', { message: 'This server was changed or removed' });
    const { expiresAt: _, ...grant } = pending;
    const store = createMemoryStore(grant);
    const provider = new SignInProvider({ ...target, store, facts: this.deps.facts });
    const { StreamableHTTPClientTransport } = await loadSdk();
    const transport = new StreamableHTTPClientTransport(new URL(target.server.url), {
      authProvider: provider,
      fetch: (url, init) =>
        fetchDocument(target.fetch, url, { ...init, timeoutMs: target.server.timeoutMs }),
    });
    try {
      await transport.finishAuth(new URLSearchParams(query));
    } catch (err) {
      this.deps.logger.warn({ err, server: name }, 'a sign-in at an MCP server failed');
      throw new OracleError('bad_request', { message: `${name} did not accept the sign-in` });
    }
    const code = createCode();
    const expiresAt = this.deps.database.now() + SIGN_IN_MS;
    await this.savePending(target, { ...store.grant, codeHash: hash(code), expiresAt });
    return { server: name, code };
  }

  /** Finishes the sign-in with the code that the callback showed. */
  async confirm({ owner, name, server }: SignInTarget, code: string): Promise<void> {
    const pending = await this.readPending(owner, name);
    const { codeHash, expiresAt, verifier: _, ...grant } = pending ?? { expiresAt: 0, url: '' };
    const isRight = codeHash !== undefined && isSame(codeHash, hash(normalizeCode(code)));
    if (!isRight || grant.url !== server.url)
      throw new OracleError('bad_request', {
        message: 'The code is wrong, or the sign-in has expired: start it again',
      });
    const secrets = this.deps.secrets(owner);
    await secrets.set(grantName(name), JSON.stringify(grant));
    await secrets.set(pendingName(name), undefined);
  }

  /** Forgets the user's grant, and a sign-in in progress. */
  async remove(owner: string, name: string): Promise<void> {
    const secrets = this.deps.secrets(owner);
    await secrets.set(grantName(name), undefined);
    await secrets.set(pendingName(name), undefined);
    await this.deps.database.write((tables) =>
      tables
        .deleteFrom('mcp_sign_ins')
        .where('owner', '=', owner)
        .where('server', '=', name)
        .execute(),
    );
  }

  /** Each state is valid once. */
  private async takeState(state: string) {
    const row = await this.deps.database.write((tables) =>
      tables
        .deleteFrom('mcp_sign_ins')
        .where('state_hash', '=', hash(state))
        .returning(['owner', 'server', 'expires_at'])
        .executeTakeFirst(),
    );
    return row && Number(row.expires_at) > this.deps.database.now() ? row : undefined;
  }

  private async readPending(owner: string, name: string) {
    const text = await readSecret(this.deps.secrets(owner), pendingName(name));
    const pending = text === undefined ? undefined : PendingGrant.parse(JSON.parse(text));
    return pending && pending.expiresAt > this.deps.database.now() ? pending : undefined;
  }

  private savePending({ owner, name }: SignInTarget, pending: z.infer<typeof PendingGrant>) {
    return this.deps.secrets(owner).set(pendingName(name), JSON.stringify(pending));
  }
}

/** Keeps a grant until its sign-in is stored as a whole. */
function createMemoryStore(initial: Grant): GrantStore & { readonly grant: Grant } {
  let grant = initial;
  return {
    get grant() {
      return grant;
    },
    read: async () => grant,
    write: async (changed) => {
      grant = changed;
    },
  };
}

/** The user opens it in a browser, so it must be a page: never a script or another program. */
function isOpenable({ protocol, hostname }: URL): boolean {
  const isLocal = ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
  return protocol === 'https:' || (protocol === 'http:' && isLocal);
}

/** Without characters that look alike. */
const CODE_LETTERS = 'ABCDEFGHJKLMNPQRSTUVWXYZ23456789';
const CODE_LENGTH = 12;

/** 60 bits, in groups of four. */
function createCode(): string {
  const letters = Array.from({ length: CODE_LENGTH }, () => CODE_LETTERS[randomInt(32)]);
  return letters.join('').replaceAll(/(.{4})(?=.)/g, '$1-');
}

/** As `createCode` writes it, however the user typed it. */
const normalizeCode = (code: string) =>
  code
    .toUpperCase()
    .replaceAll(/[^A-Z0-9]/g, '')
    .replaceAll(/(.{4})(?=.)/g, '$1-');

function isSame(a: string, b: string): boolean {
  return a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
}
