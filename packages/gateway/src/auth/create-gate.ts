import { hash, timingSafeEqual } from 'node:crypto';
import type { DidFetch } from '@sibyl/ucan';
import type { ApiKey } from '../config/environment.js';
import type { NodePool } from '../nodes/node-pool.js';
import { toQueryError } from '../query/query-error.js';
import type { QueryParser } from '../query/query-parser.js';
import type { QueryService } from '../query/query-service.js';
import { type Caller, type Credentials, type Gate, readBearer, unauthenticated } from './gate.js';
import type { UcanGateDeps } from './ucan-gate.js';

/** Creates the configured gate, with the gateway's DID if it has one. */
export async function createGate(deps: UcanGateDeps): Promise<{ gate: Gate; did?: string }> {
  const { auth, apiKeys } = deps.config.gating;
  switch (auth) {
    case 'none':
      return { gate: openGate };
    case 'api-key':
      return { gate: new ApiKeyGate(apiKeys) };
    case 'ucan': {
      // Loaded on demand, since it would slow down other configurations.
      const { createUcanGate } = await import('./ucan-gate.js');
      return createUcanGate(deps);
    }
    default:
      return auth satisfies never;
  }
}

/** Admits all callers, identified by their address. */
export const openGate: Gate = {
  admit: ({ address }) => ({
    name: address,
    address,
    perMinute: undefined,
    expiresAt: undefined,
    mayQuery: () => true,
  }),
};

/** Admits callers with an API key; only digests of keys are kept. */
export class ApiKeyGate implements Gate {
  private readonly callers: readonly { readonly sha256: Buffer; readonly caller: Caller }[];

  constructor(keys: readonly ApiKey[]) {
    this.callers = keys.map((key) => ({ sha256: key.sha256, caller: toCaller(key) }));
  }

  admit({ headers }: Credentials): Caller {
    const given = headers['x-api-key'] ?? readBearer(headers);
    if (typeof given !== 'string' || given === '') {
      throw unauthenticated('an API key is required: X-API-Key, or Authorization: Bearer');
    }
    const digest = hash('sha256', given, 'buffer');
    // Compares all keys, so that timing reveals nothing.
    const found = this.callers.filter(({ sha256 }) => timingSafeEqual(sha256, digest));
    if (!found[0]) throw unauthenticated('unknown API key');
    return found[0].caller;
  }
}

function toCaller({ name, limit, scopes }: ApiKey): Caller {
  return {
    name: `key ${name}`,
    address: undefined,
    perMinute: limit,
    expiresAt: undefined,
    mayQuery: (template) =>
      scopes === undefined || scopes.some((scope) => isInScope(template, scope)),
  };
}

/** Whether a scope covers a route template: it equals the template, or ends with `*` and is a prefix. */
export function isInScope(template: string, scope: string): boolean {
  if (!scope.endsWith('*')) return template === scope;
  return template.startsWith(scope.slice(0, -1));
}

interface ChainFetchDeps {
  readonly queryParser: QueryParser;
  readonly queryService: QueryService;
  readonly pool: NodePool;
}

/** The gateway as a caller. */
const OWN = { name: 'gateway', address: undefined };

/** Creates a fetch function that queries the chain behind this gateway by the path of a URL, without authentication. */
export function createChainFetch({ queryParser, queryService, pool }: ChainFetchDeps): DidFetch {
  return async (url) => {
    const { pathname: path, searchParams } = new URL(url);
    try {
      const request = { method: 'GET', path, query: searchParams, headers: {} };
      const query = await queryParser.read(request, () => {});
      const { body } = await queryService.answer(query, OWN);
      return new Response(new Uint8Array(body));
    } catch (error) {
      const queryError = toQueryError(error, { pool, height: undefined, compat: undefined });
      if (!queryError) throw error;
      return Response.json(
        { code: queryError.code, message: queryError.message },
        { status: queryError.status },
      );
    }
  };
}
