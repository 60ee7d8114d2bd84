import { hash, timingSafeEqual } from 'node:crypto';
import type { ApiKey } from '../config/api-key.js';
import { bearerOf } from './bearer.js';
import type { Caller, Credentials, Gate } from './caller.js';
import { unauthenticated } from './refusals.js';
import { isInScope } from './scope.js';

/** Lets those in who know a key; only digests of keys are kept. */
export class ApiKeyGate implements Gate {
  private readonly callers: readonly { readonly sha256: Buffer; readonly caller: Caller }[];

  constructor(keys: readonly ApiKey[]) {
    this.callers = keys.map((key) => ({ sha256: key.sha256, caller: callerOf(key) }));
  }

  admit({ headers }: Credentials): Caller {
    const given = headers['x-api-key'] ?? bearerOf(headers);
    if (typeof given !== 'string' || given === '') {
      throw unauthenticated('an API key is needed: X-API-Key, or Authorization: Bearer');
    }
    const digest = hash('sha256', given, 'buffer');
    // All are compared, so that the time taken says nothing about which one is close.
    const found = this.callers.filter(({ sha256 }) => timingSafeEqual(sha256, digest));
    if (!found[0]) throw unauthenticated('the API key is not known');
    return found[0].caller;
  }
}

function callerOf({ name, limit, scopes }: ApiKey): Caller {
  return {
    name: `key ${name}`,
    address: undefined,
    perMinute: limit,
    expiresAt: undefined,
    mayAsk: (template) =>
      scopes === undefined || scopes.some((scope) => isInScope(template, scope)),
  };
}
