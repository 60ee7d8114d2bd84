import {
  createOracleClient,
  createSigner,
  type OracleClient,
  type OracleClientOptions,
} from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';

/** A client of somebody with a new key. */
export function createTestClient(
  { url }: { readonly url: string },
  options: Partial<OracleClientOptions> = {},
): OracleClient {
  return createOracleClient({ url, signer: createSigner(generateSigner()), ...options });
}
