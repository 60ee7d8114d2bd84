import { OracleClientError } from '../oracle-client-error.js';

const DATABASE = 'sibyl';
const STORE = 'keys';

/** A key as the browser keeps it. */
export interface KeptKey {
  /** Not extractable. */
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  /** The same private key, extractable, until it has been exported. */
  readonly backup?: CryptoKey;
}

/** Finds a key by its name. */
export async function findKey(name: string): Promise<KeptKey | undefined> {
  return inStore('readonly', (keys) => keys.get(name));
}

/** Keeps a key, in place of one of the same name. */
export async function keepKey(name: string, key: KeptKey): Promise<void> {
  await inStore('readwrite', (keys) => keys.put(key, name));
}

/** Keeps a key unless another tab was faster; returns the one that is kept. */
export async function keepFirstKey(name: string, key: KeptKey): Promise<KeptKey> {
  return inStore('readwrite', (keys) => {
    const found: IDBRequest<KeptKey | undefined> = keys.get(name);
    found.onsuccess = () => found.result ?? keys.put(key, name);
    return found;
  }).then((found) => found ?? key);
}

/** Runs one request in one transaction, and waits until that is on disk. */
async function inStore<T>(
  mode: IDBTransactionMode,
  request: (keys: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const database = await openDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: 'strict' });
      const asked = request(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

function openDatabase(): Promise<IDBDatabase> {
  if (typeof indexedDB === 'undefined') {
    throw new OracleClientError(
      'unsupported_platform',
      'Keys are kept in IndexedDB, which is not there',
    );
  }
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}
