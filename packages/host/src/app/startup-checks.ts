import { access, constants, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { ConfigError } from '@sibyl/server-kit/environment';
import { createDidWebResolver, type DidError, type DidResolver, didWebUrl } from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Config } from '../config/config.js';
import { isLoopback } from '../http/ucan-guard.js';
import { createResolver } from './outgoing.js';

/** Warns about defaults that are too open for a host that is reachable from other machines. */
export function warnAboutOpenAccess({ host, corsOrigins, auth }: Config, logger: Logger): void {
  if (isLoopback(host)) return;
  if (corsOrigins.includes('*'))
    logger.warn(
      `CORS_ORIGIN=* lets pages of every website call this host, which listens on ${host}; set CORS_ORIGIN to the origins of your own pages`,
    );
  if (auth.allowDelegationLogin && auth.loginMaxDays === undefined)
    logger.warn(
      'Delegations that never expire can log in, and other services may know them; set DELEGATION_LOGIN_MAX_DAYS=30, or UCAN_ALLOW_DELEGATION_LOGIN=false if your clients need none',
    );
}

/**
 * Checks that the document of ORACLE_DID lists the oracle's key, without which services
 * cannot verify what the oracle signs. The host does not start with a document that lacks the key.
 */
export class OwnDidCheck {
  private readonly resolver: DidResolver;
  private isUnread = false;

  constructor(
    config: Config,
    private readonly oracle: OracleIdentity,
    private readonly logger: Logger,
  ) {
    this.resolver = createOwnResolver(config, oracle.did);
  }

  /** Throws a ConfigError if the document exists but lacks the key. */
  async beforeListening(): Promise<void> {
    const { signer } = this.oracle;
    if (signer.did === signer.keyDid) return;
    const fault = await this.findError();
    if (!fault) return;
    // The host may serve the document itself, so a missing one is checked again once it listens.
    this.isUnread = isUnreadable(fault);
    if (this.isUnread) return;
    const remedy = `List ${signer.keyDid} in the document as a verification method for assertions, or unset ORACLE_DID to use the key's own DID`;
    throw new ConfigError('host', [
      { subject: 'ORACLE_DID (host)', problem: fault.detail, remedy },
    ]);
  }

  /** Reports a document that still cannot be read now that the host may serve it itself. */
  async onceListening(): Promise<void> {
    if (!this.isUnread) return;
    const fault = await this.findError();
    if (!fault) return;
    const { did, signer } = this.oracle;
    const advice = `others cannot verify what this oracle signs until the document of ${did} lists ${signer.keyDid}`;
    const text = `ORACLE_DID: ${fault.detail}; ${advice}`;
    if (isUnreadable(fault)) this.logger.warn(text);
    else this.logger.error(text);
  }

  private async findError(): Promise<DidError | undefined> {
    const { did, signer } = this.oracle;
    const { ok: keys, error } = await this.resolver.resolve(did);
    if (error) return error;
    if (keys.some((key) => Buffer.compare(key, signer.publicKey) === 0)) return undefined;
    return { code: 'did_invalid', detail: `the document of ${did} does not list the oracle's key` };
  }
}

const isUnreadable = ({ code }: DidError) => code !== 'did_invalid' && code !== 'did_deactivated';

/** Without a cache; the operator chose the address of a did:web, so it may be a private one. */
function createOwnResolver(config: Config, did: string): DidResolver {
  const { ok: url } = didWebUrl(did);
  if (!url) return createResolver(config);
  const fetch = createSafeFetch({ allow: [...config.outgoingAllow, new URL(url).host] });
  return createDidWebResolver({ fetch, allowHttp: true });
}

/** Why a file cannot be created in a folder, which need not exist yet; undefined if it can. */
export async function checkWritable(folder: string): Promise<string | undefined> {
  try {
    if (!(await stat(folder)).isDirectory()) return `${folder} is not a folder`;
    await access(folder, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const parent = dirname(folder);
    return code === 'ENOENT' && parent !== folder ? checkWritable(parent) : message;
  }
}
