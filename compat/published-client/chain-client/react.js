// Stands in for the seven names that the published client imports of its chain client, which cannot be installed whole.
// None of them takes part in what is tested: the oracle's address is given, and nothing is paid on a chain.

export class Payments {}

export class CryptoUtils {}

export const Authz = { getOracleAuthZConfig: async () => ({}) };

/** An entity without services: the client then uses the address it was given. */
export const gqlClient = { GetEntityById: async ({ id }) => ({ entity: { id, service: [] } }) };

export const getMatrixUrlsForDid = async () => ({});

export const getOracleAgentCard = async () => null;

export const normalizeMatrixHomeServerUrl = (url) => url;
