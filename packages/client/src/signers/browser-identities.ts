import { createWebSigner } from '@sibyl/ucan/browser';
import { OracleClientError } from '../errors.js';
import { generateKey } from './browser-signer.js';
import {
  addKey,
  changeKey,
  listKeys,
  removeKey,
  type StoredEntry,
  type StoredKey,
} from './key-database.js';
import { exportPublicKey, exportSeed, importPublicKey, importSeed } from './key-format.js';
import { createLock, openLock } from './passkey.js';

/** A key in this browser, and what the user knows about it. */
export interface BrowserIdentity {
  readonly did: string;
  readonly name: string | undefined;
  readonly isActive: boolean;
  /** Milliseconds; undefined while the key exists in this browser only. */
  readonly backedUpAt: number | undefined;
  readonly isProtected: boolean;
}

/** All identities of this browser, the one in use first. */
export async function listBrowserIdentities(): Promise<readonly BrowserIdentity[]> {
  const entries = await listKeys();
  return Promise.all(entries.map((entry, i) => describe(entry, i === 0)));
}

/** Generates another identity, which is not in use yet. */
export async function createBrowserIdentity({ name }: { readonly name?: string } = {}) {
  return add(await generateKey(), name);
}

/**
 * Adds an identity from a backup. One that the browser has already keeps its name and counts as backed up, and loses
 * the protection of a passkey.
 */
export async function importBrowserIdentity(
  seed: Uint8Array,
  { name }: { readonly name?: string } = {},
): Promise<BrowserIdentity> {
  const backup = await importSeed(seed, 'extractable');
  const publicKey = await importPublicKey(await exportPublicKey(backup));
  const privateKey = await importSeed(seed, 'sealed');
  const createdAt = Date.now();
  const added = await add({ privateKey, publicKey, backup, createdAt }, name);
  const backedUpAt = Date.now();
  // The user has the key itself, and may have lost the passkey.
  await change(added.did, ({ lock: _, ...key }) => ({ ...key, privateKey, backup, backedUpAt }));
  return { ...added, backedUpAt, isProtected: false };
}

/** Puts an identity in use from the next `openBrowserSigner` on. */
export async function activateBrowserIdentity(did: string): Promise<void> {
  await change(did, (key, all) => ({
    ...key,
    activeAt: Math.max(Date.now(), 1 + Math.max(...all.map((each) => each.key.activeAt ?? 0))),
  }));
}

export async function renameBrowserIdentity(did: string, name: string): Promise<void> {
  await change(did, (key) => ({ ...key, name }));
}

/** Records that the user has a backup of the key. */
export async function confirmBrowserBackup(did: string): Promise<void> {
  await change(did, (key) => ({ ...key, backedUpAt: Date.now() }));
}

/** Deletes an identity that is not in use and has a backup; throws for others. */
export async function removeBrowserIdentity(did: string): Promise<void> {
  const { id } = await find(did);
  await removeKey(id, (key, [active]) => {
    if (active?.id === id) throw notRemoved('Switch to another identity first');
    if (key.backedUpAt === undefined) throw notRemoved('Back up the key first');
  });
}

/** Returns the secret of an identity, for a backup. Asks for the passkey if one protects it. */
export async function exportBrowserSeed(did: string): Promise<Uint8Array> {
  const { key } = await find(did);
  if (key.lock) return openLock(key.lock);
  if (key.backup) return exportSeed(key.backup);
  throw new OracleClientError('key_not_found', 'This browser has no copy of that key to export');
}

/** Creates a passkey without which this browser cannot use the key any more. */
export async function protectBrowserIdentity(did: string, name: string): Promise<void> {
  const seed = await exportBrowserSeed(did);
  const lock = await createLock(seed, { did, name });
  await change(did, ({ privateKey: _, backup: __, ...key }) => ({ ...key, lock }));
}

/** Asks for the passkey one last time and stores the key without it. */
export async function unprotectBrowserIdentity(did: string): Promise<void> {
  const seed = await exportBrowserSeed(did);
  const privateKey = await importSeed(seed, 'sealed');
  const backup = await importSeed(seed, 'extractable');
  await change(did, ({ lock: _, ...key }) => ({ ...key, privateKey, backup }));
}

async function add(key: StoredKey, name: string | undefined): Promise<BrowserIdentity> {
  const did = await readDid(key);
  const known = await findIfPresent(did);
  const entry = { id: known?.id ?? did, key: { ...key, ...(name !== undefined && { name }) } };
  const entries = await addKey(entry);
  const stored = entries.find(({ id }) => id === entry.id) ?? entry;
  return describe(stored, entries[0] === stored);
}

async function describe({ key }: StoredEntry, isActive: boolean): Promise<BrowserIdentity> {
  const { name, backedUpAt, lock } = key;
  return {
    did: await readDid(key),
    name,
    isActive,
    backedUpAt,
    isProtected: lock !== undefined,
  };
}

async function change(did: string, work: Parameters<typeof changeKey>[1]): Promise<void> {
  await changeKey((await find(did)).id, work);
}

async function find(did: string): Promise<StoredEntry> {
  const found = await findIfPresent(did);
  if (found) return found;
  throw new OracleClientError('key_not_found', 'This browser no longer has that key');
}

async function findIfPresent(did: string): Promise<StoredEntry | undefined> {
  for (const entry of await listKeys()) if ((await readDid(entry.key)) === did) return entry;
  return undefined;
}

const readDid = async ({ publicKey }: StoredKey): Promise<string> =>
  (await createWebSigner({ privateKey: publicKey, publicKey })).did;

const notRemoved = (what: string) =>
  new OracleClientError('key_in_use', `Nothing was removed. ${what}.`);
