export { openKeyFile } from './key-file.js';
export { signerFromMnemonic, signerFromPrivateKey } from './node-signers.js';
