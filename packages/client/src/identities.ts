export {
  activateBrowserIdentity,
  type BrowserIdentity,
  confirmBrowserBackup,
  createBrowserIdentity,
  exportBrowserSeed,
  importBrowserIdentity,
  listBrowserIdentities,
  protectBrowserIdentity,
  removeBrowserIdentity,
  renameBrowserIdentity,
  unprotectBrowserIdentity,
} from './signers/browser-identities.js';
export {
  type BackupSubject,
  decryptKeyBackup,
  encryptKeyBackup,
  packSeed,
  type RestoredKey,
  readBackupDid,
  unpackSeed,
} from './signers/key-backup.js';
export { formatPrivateKey, parsePrivateKey } from './signers/key-format.js';
export { checkPasskeySupport } from './signers/passkey.js';
