import { createMinter, createVerifier, type TokenPurpose, type UcanFault } from '@sibyl/ucan';
import type { Logger } from 'pino';
import { Authenticator } from '../auth/authenticator.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { DelegatedAuthority } from '../auth/delegated-authority.js';
import { OracleAuthority } from '../auth/oracle-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import { PresentedDelegations } from '../auth/presented-delegations.js';
import type { Config } from '../config/config.js';
import { DelegationService } from '../delegation/delegation.service.js';
import type { Metrics } from '../observe/metrics.js';
import type { Store } from '../store/store.js';
import { createResolver } from './did-resolvers.js';

interface AuthNeeds {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly store: Store;
}

/** Wires who is let in, and what the oracle may sign. */
export function wireAuth({ config, logger, metrics, oracle, store }: AuthNeeds) {
  const resolver = createResolver(config);
  const rules = {
    audience: oracle.did,
    resolver,
    revocations: { isRevoked: (cid: string) => store.revocations.has(cid) },
    spentTokens: store.singleUse,
    maxTtlSeconds: config.auth.maxTtlSeconds,
    onRefusal: (purpose: TokenPurpose, fault: UcanFault) => {
      metrics.count('sibyl_tokens_refused_total', { purpose, reason: fault.code });
      logMisuse(logger, fault);
    },
  };
  const verifier = createVerifier(rules);
  const { delegations, disk, callers } = store;
  const { allowDelegationLogin, loginMaxDays, callersAllow } = config.auth;
  const oracleDid = oracle.did;
  const uses = { oracleDid, delegations, disk, logger, loginMaxDays };
  const presented = new PresentedDelegations(uses);
  const authority = new DelegatedAuthority({
    oracleDid,
    verifier,
    minter: createMinter({ signer: oracle.signer }),
    resolver,
    delegations,
    presented,
    logger,
  });
  const oracleAuthority = new OracleAuthority({
    signer: oracle.signer,
    resolver,
    verifierFor: (issuer) => createVerifier({ ...rules, singleUse: store.singleUse.of(issuer) }),
    logger,
  });
  const login = { verifier, logger, metrics, allowDelegationLogin, presented };
  return {
    authenticator: new Authenticator(login),
    presented,
    allowList: new CallerAllowList({ listed: callersAllow, callers, logger }),
    authority,
    oracleAuthority,
    delegations: new DelegationService({ oracleDid, verifier, authority, presented, store }),
  };
}

/** A token that was made for one call came as a delegation: the service it was sent to may have kept it. */
function logMisuse(logger: Logger, { code, detail, cid, issuer }: UcanFault): void {
  if (code !== 'wrong_purpose' && code !== 'single_use') return;
  logger.warn(
    { reason: code, detail, cid, did: issuer },
    'an invocation was presented as a delegation',
  );
}
