import { createPublicKey, verify } from 'node:crypto';
import { publicKeyFromDid } from '@sibyl/ucan';

const TOLERANCE_SECONDS = 300;
/** What precedes the 32 bytes of an Ed25519 key in DER. */
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

/** Whether the oracle with this DID sent this body, as received, in the last five minutes. */
export function verifyWebhook(
  did: string,
  headers: Readonly<Record<string, string | undefined>>,
  body: string,
): boolean {
  const id = headers['webhook-id'];
  const timestamp = headers['webhook-timestamp'];
  const signatures = headers['webhook-signature'] ?? '';
  const age = Math.abs(Date.now() / 1000 - Number(timestamp));
  const { ok: bytes } = publicKeyFromDid(did);
  if (!bytes || !(age <= TOLERANCE_SECONDS)) return false;
  const der = Buffer.concat([SPKI_HEAD, bytes]);
  const key = createPublicKey({ key: der, format: 'der', type: 'spki' });
  const signed = Buffer.from(`${id}.${timestamp}.${body}`);
  return signatures
    .split(' ')
    .filter((each) => each.startsWith('v1a,'))
    .some((each) => verify(null, signed, key, Buffer.from(each.slice(4), 'base64')));
}
