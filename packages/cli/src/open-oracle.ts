import { createOracleClient, type OracleClient, type OracleSigner } from '@sibyl/client';
import { openKeyFile } from '@sibyl/client/node';
import { CommandError } from './command.js';
import { defaultUrl, keyFile } from './environment.js';
import type { Output } from './terminal.js';

/** An oracle, and who is talking to it. */
export interface OpenOracle {
  readonly client: OracleClient;
  readonly signer: OracleSigner;
  /** The oracle's DID. */
  readonly did: string;
  readonly name: string;
}

/** The oracle at an address, as the user of the key file. */
export async function openOracle(given: string | undefined, output: Output): Promise<OpenOracle> {
  const url = given ?? defaultUrl();
  if (!/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new CommandError(`"${url}" is not an address such as http://127.0.0.1:3000`);
  }
  const signer = await openKeyFile(keyFile());
  const client = createOracleClient({ url, signer });
  try {
    const { did, name } = await output.progress('Looking for the oracle', client.card());
    return { client, signer, did, name };
  } catch (cause) {
    throw new CommandError(
      `No oracle answers at ${url}: start one with "sibyl start", or say where it is`,
      { cause },
    );
  }
}
