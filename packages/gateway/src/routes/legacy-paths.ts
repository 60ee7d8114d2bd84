/**
 * Paths of earlier versions of the chain, and what took their place. Those without a variable come
 * before what the chain declares, or `/ixo/entity/{id}` would take `/ixo/entity/config` for an id.
 */
export const LEGACY_PATHS: readonly (readonly [legacy: string, successor: string])[] = [
  ['/ixo/claim', '/ixo/claims/claims'],
  ['/ixo/claim/{id}', '/ixo/claims/claim/{id}'],
  ['/ixo/collection', '/ixo/claims/collections'],
  ['/ixo/collection/{id}', '/ixo/claims/collection/{id}'],
  ['/ixo/dispute', '/ixo/claims/disputes'],
  ['/ixo/dispute/{proof}', '/ixo/claims/dispute/{proof}'],
  ['/ixo/token/config', '/ixo/token/params'],
  ['/ixo/token/{minter}', '/ixo/token/minter/{minter}'],
  ['/ixo/token/{minter}/{contract_address}', '/ixo/token/minter/{minter}/{contract_address}'],
  ['/ixo/did', '/ixo/did/dids'],
  ['/ixo/did/{id}', '/ixo/did/dids/{id}'],
  ['/ixo/allDidDocs', '/ixo/did/dids'],
  ['/did', '/ixo/did/dids'],
  ['/did/{id}', '/ixo/did/dids/{id}'],
  ['/allDidDocs', '/ixo/did/dids'],
  ['/ixo/bonds', '/ixo/bonds/bonds'],
  ['/ixo/bonds_detailed', '/ixo/bonds/bonds_detailed'],
  ['/ixo/entity/config', '/ixo/entity/params'],
];
