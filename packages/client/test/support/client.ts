import {
  createOracleClient,
  createSigner,
  type OracleClient,
  type OracleClientOptions,
} from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';

/** Creates a client with a new key. */
export function createTestClient(
  { url }: { readonly url: string },
  options: Partial<OracleClientOptions> = {},
): OracleClient {
  return createOracleClient({ url, signer: createSigner(generateSigner()), ...options });
}
