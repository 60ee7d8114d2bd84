import { readFileSync } from 'node:fs';
import type { Tool } from '@sibyl/plugin-kit';
import { createMinter, createVerifier } from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Models } from '../agent/model/models.js';
import { Authenticator } from '../auth/authenticator.js';
import { DelegatedAuthority } from '../auth/delegated-authority.js';
import { loadOracleIdentity, type OracleIdentity } from '../auth/oracle-identity.js';
import type { PublicRoutes } from '../auth/public-routes.js';
import { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import { DelegationService } from '../delegation/delegation.service.js';
import { HostFacts } from '../health/host-facts.js';
import type { ReplySender } from '../messages/reply-sender.js';
import { Metrics } from '../observe/metrics.js';
import { openStore } from '../store/open-store.js';
import type { Store } from '../store/store.js';
import type { Titles } from '../turn/titles.js';
import type { Turns } from '../turn/turns.js';
import { createResolver } from './did-resolvers.js';
import { wireTurns } from './wire-turns.js';

/** What the host is made of, built before Nest and without it. */
export interface HostParts {
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly facts: HostFacts;
  readonly publicRoutes: PublicRoutes;
  readonly store: Store;
  readonly authenticator: Authenticator;
  readonly authority: DelegatedAuthority;
  readonly delegations: DelegationService;
  readonly rateLimits: RateLimits;
  /** Largest request body, in bytes. */
  readonly bodyLimit: number;
  readonly models: Models;
  readonly turns: Turns;
  readonly titles: Titles;
  readonly replies: ReplySender;
}

interface HostPartsOptions {
  readonly tools: readonly Tool[];
  readonly config: Config;
  readonly logger: Logger;
  readonly publicRoutes: PublicRoutes;
  readonly features: readonly string[];
}

/** Loads the oracle's key, opens the store and wires who may do what. */
export async function buildHostParts(options: HostPartsOptions): Promise<HostParts> {
  const { config, logger, publicRoutes, features } = options;
  const metrics = new Metrics();
  const oracle = await loadOracleIdentity(config);
  const store = await openStore({
    databaseUrl: config.databaseUrl,
    dataDir: config.dataDir,
    secretKey: oracle.signer.exportSeed(),
    onConnectionLost: (err) => logger.warn({ err }, 'database connection lost'),
  });
  const auth = wireAuth({ config, logger, metrics, oracle, store });
  const { authority } = auth;
  return {
    logger,
    metrics,
    oracle,
    facts: new HostFacts(readVersion(), features),
    publicRoutes,
    store,
    bodyLimit: config.bodyLimit,
    rateLimits: new RateLimits({ ...config.rateLimits, metrics }),
    ...auth,
    ...wireTurns({ config, logger, metrics, oracle, store, authority, tools: options.tools }),
  };
}

type AuthNeeds = Pick<HostParts, 'logger' | 'metrics' | 'oracle' | 'store'> & {
  readonly config: Config;
};

function wireAuth({ config, logger, metrics, oracle, store }: AuthNeeds) {
  const resolver = createResolver(config);
  const verifier = createVerifier({
    audience: oracle.did,
    resolver,
    revocations: { isRevoked: (cid) => store.revocations.has(cid) },
    maxTtlSeconds: config.auth.maxTtlSeconds,
  });
  const authority = new DelegatedAuthority({
    oracleDid: oracle.did,
    verifier,
    minter: createMinter({ signer: oracle.signer }),
    resolver,
    delegations: store.delegations,
    logger,
  });
  const { allowDelegationLogin } = config.auth;
  return {
    authenticator: new Authenticator({ verifier, logger, metrics, allowDelegationLogin }),
    authority,
    delegations: new DelegationService({ oracleDid: oracle.did, verifier, authority, store }),
  };
}

function readVersion(): string {
  const path = new URL('../../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}
