import type { OracleClient, OracleClientOptions } from './oracle-client.js';

/** A client of the oracle at `url`; nothing is asked before the first call. */
export declare function createOracleClient(options: OracleClientOptions): OracleClient;
