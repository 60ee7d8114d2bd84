const MAX_DID = 512;
const DID =
  /^did:([a-z0-9]+):(?:[A-Za-z0-9._:-]|%[0-9A-Fa-f]{2})*(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})$/;

/** The method of a well-formed DID without path, query or fragment; undefined for anything else. */
export function didMethod(did: string): string | undefined {
  if (typeof did !== 'string' || did.length > MAX_DID) return undefined;
  return DID.exec(did)?.[1];
}
