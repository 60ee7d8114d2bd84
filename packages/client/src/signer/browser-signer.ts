import type { OracleSigner } from './oracle-signer.js';

/** The signer of a key that this browser keeps in IndexedDB. */
export interface BrowserSigner extends OracleSigner {
  /** Whether `exportKey` would work: the key was made here and never exported. */
  canExport(): Promise<boolean>;
  /** The private key as text, once: after that no script on this page can read it again. */
  exportKey(): Promise<string>;
}

export interface BrowserSignerOptions {
  /** Tells keys of one origin apart. */
  readonly name?: string;
}

/** Opens this browser's key, or makes one on the first visit. */
export declare function openBrowserSigner(options?: BrowserSignerOptions): Promise<BrowserSigner>;

/** Replaces this browser's key by one exported elsewhere. */
export declare function importBrowserKey(
  text: string,
  options?: BrowserSignerOptions,
): Promise<BrowserSigner>;
