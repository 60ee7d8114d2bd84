import * as ucan from '@sibyl/ucan';
import { OracleClientError } from '../oracle-client-error.js';
import { createSigner } from '../signer/create-signer.js';
import type { OracleSigner } from '../signer/oracle-signer.js';

/** The signer of a mnemonic: its seed is the SHA-256 of the trimmed text. */
export const signerFromMnemonic = (text: string): OracleSigner =>
  signerOf(ucan.signerFromMnemonic(text));

/** The signer of a key as the chat page and `sibyl key export` write it, or of 64 hex digits. */
export const signerFromPrivateKey = (text: string): OracleSigner =>
  signerOf(ucan.signerFromPrivateKey(text));

function signerOf({ ok, error }: ReturnType<typeof ucan.signerFromMnemonic>): OracleSigner {
  if (ok) return createSigner(ok);
  throw new OracleClientError('key_invalid', error.detail);
}
