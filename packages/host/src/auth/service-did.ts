import { OracleError } from '@sibyl/protocol';
import { type DidResolver, didWebOf } from '@sibyl/ucan';

/** The DID of the service at an address; its document must name the DID of the address that was asked. */
export async function resolveServiceDid(
  resolver: DidResolver,
  serviceUrl: string,
): Promise<string> {
  const { ok: did, error: fault } = didWebOf(serviceUrl);
  const { error = fault } = did ? await resolver.resolve(did) : {};
  if (did && !error) return did;
  throw new OracleError('forbidden', {
    message: `${serviceUrl} does not prove its DID: ${error?.detail}`,
  });
}
