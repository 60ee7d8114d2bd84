import {
  createCachedResolver,
  createDidIxoResolver,
  createDidKeyResolver,
  createDidResolver,
  createVerifier,
  type DidFetch,
  systemClock,
} from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import type { Logger } from '../observe/logger.js';
import { keepSigner } from './key-file.js';
import { UcanGate } from './ucan-gate.js';
import { WAITING } from './verification-limits.js';

export interface UcanGateParts {
  readonly config: Config;
  readonly logger: Logger;
  /** Asks the chain itself, for the keys of did:ixo. */
  readonly askChain: DidFetch;
}

/** A gate for UCANs addressed to the gateway's DID. */
export async function createUcanGate({ config, logger, askChain }: UcanGateParts) {
  const { did = (await keepSigner(config.dataDir)).did, ucanIssuers } = config.gating;
  // The nodes are the operator's own, so the limits of verifications suffice: they keep one address
  // from using up all lookups.
  const maxPending = WAITING.total;
  // The address is never looked up: `askChain` takes the path alone.
  const ixo = createDidIxoResolver({ chainRestUrl: 'http://chain', fetch: askChain, maxPending });
  const methods = {
    key: createDidKeyResolver(),
    ixo: createCachedResolver({ resolver: ixo, clock: systemClock, maxPending }),
  };
  const verifier = createVerifier({
    audience: did,
    resolver: createDidResolver({ methods }),
    // Bearers live for minutes, so there is nobody to revoke one with.
    revocations: { isRevoked: () => false },
  });
  return { gate: new UcanGate({ verifier, issuers: ucanIssuers, logger }), did };
}
