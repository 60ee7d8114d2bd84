import type { OracleSigner } from '../signer/oracle-signer.js';

/** The signer of the key in a file, which is made (readable by its owner alone) when missing. */
export declare function openKeyFile(path: string): Promise<OracleSigner>;
/** The signer of a mnemonic: its seed is the SHA-256 of the trimmed text. */
export declare function signerFromMnemonic(text: string): OracleSigner;
/** The signer of a key as `sibyl key export` and the chat page write it, or of 64 hex digits. */
export declare function signerFromPrivateKey(text: string): OracleSigner;
