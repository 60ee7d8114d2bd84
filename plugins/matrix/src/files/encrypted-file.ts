import { createDecipheriv, createHash } from 'node:crypto';
import { z } from 'zod';

/** What an event says of an encrypted file (Matrix, EncryptedFile v2). */
export const EncryptedFile = z.object({
  url: z.string(),
  key: z.object({ k: z.string(), alg: z.literal('A256CTR') }),
  iv: z.string(),
  hashes: z.object({ sha256: z.string() }),
});
export type EncryptedFile = z.infer<typeof EncryptedFile>;

/** Decrypts a file whose bytes are those the event speaks of; throws otherwise. */
export function decryptFile(bytes: Uint8Array, { key, iv, hashes }: EncryptedFile): Uint8Array {
  const hash = createHash('sha256').update(bytes).digest();
  if (!hash.equals(Buffer.from(hashes.sha256, 'base64'))) {
    throw new Error('its hash is not the one in the event');
  }
  const secret = Buffer.from(key.k, 'base64url');
  const counter = Buffer.from(iv, 'base64');
  if (secret.length !== 32 || counter.length !== 16) throw new Error('its key is not valid');
  const decipher = createDecipheriv('aes-256-ctr', secret, counter);
  return Buffer.concat([decipher.update(bytes), decipher.final()]);
}
