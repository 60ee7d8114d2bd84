import { refuseDid } from './did-fault.js';
import { IXO_NEEDS } from './did-ixo.js';
import type { DidResolver } from './did-resolver.js';
import { didMethod } from './did-syntax.js';

export interface DidMethods {
  readonly key: DidResolver;
  readonly ixo?: DidResolver | undefined;
  readonly web?: DidResolver | undefined;
}

/** Sends each DID to the resolver of its method; checks the syntax before anything is asked. */
export function createDidResolver({ methods }: { readonly methods: DidMethods }): DidResolver {
  return {
    needsLookup(did) {
      const method = didMethod(did);
      if (method !== 'ixo' && method !== 'web') return false;
      const resolver = methods[method];
      return resolver !== undefined && (resolver.needsLookup?.(did) ?? true);
    },
    async resolve(did) {
      const method = didMethod(did);
      switch (method) {
        case undefined:
          return refuseDid('did_invalid', 'not a DID, or longer than 512 characters');
        case 'key':
          return methods.key.resolve(did);
        case 'ixo':
          return methods.ixo?.resolve(did) ?? refuseDid('did_unsupported', IXO_NEEDS);
        case 'web':
          return methods.web?.resolve(did) ?? refuseDid('did_unsupported', 'did:web is turned off');
        default:
          return refuseDid('did_unsupported', `did:${method} is none of did:key, did:ixo, did:web`);
      }
    },
  };
}
