import { signerFromPrivateKey } from '@sibyl/client/node';
import type { Page } from 'playwright-core';
import { afterEach, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { useWebPage } from './support/web-page.js';

const web = useWebPage();
let host: TestHost | undefined;
afterEach(async () => {
  await web.leave();
  await host?.close();
});

/** Opens the browser's key in the page. */
const openKey = (page: Page) =>
  page.evaluate(async () => {
    const signer = await sibyl.openBrowserSigner();
    return { did: signer.did, canExport: await signer.canExport() };
  });

const exportKey = (page: Page) =>
  page.evaluate(async () => {
    const signer = await sibyl.openBrowserSigner();
    return signer.exportKey().catch((error) => `not exported: ${error.code}`);
  });

const importKey = (page: Page, text: string) =>
  page.evaluate(
    (key) =>
      sibyl.importBrowserKey(key).then(
        ({ did }) => did,
        (error) => `not imported: ${error.code}`,
      ),
    text,
  );

/** Tries to read all private keys from IndexedDB, like an injected script. */
const readSecrets = (page: Page) =>
  page.evaluate(
    () =>
      new Promise<string[]>((resolve, reject) => {
        const opening = indexedDB.open('sibyl');
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const request = opening.result.transaction('keys').objectStore('keys').getAll();
          request.onsuccess = async () => {
            const keys = (request.result as object[]).flatMap((kept) => Object.values(kept));
            const secret = (keys as CryptoKey[]).filter(({ type }) => type === 'private');
            const read = secret.map((key) =>
              crypto.subtle.exportKey('pkcs8', key).then(
                () => 'readable',
                () => 'sealed',
              ),
            );
            opening.result.close();
            resolve(await Promise.all(read));
          };
        };
      }),
  );

describe('openBrowserSigner', () => {
  it('generates a key on the first visit and finds it on the next and in other tabs', async () => {
    const page = await web.open();
    const { did, canExport } = await openKey(page);
    expect(did).toMatch(/^did:key:z6Mk/);
    expect(canExport).toBe(true);
    await page.reload();
    expect((await openKey(page)).did).toBe(did);
    expect((await openKey(await web.open(page.context()))).did).toBe(did);
    expect((await openKey(await web.open())).did).not.toBe(did);
  });

  it('generates one key when several tabs open it at once', async () => {
    const first = await web.open();
    const tabs = [first, await web.open(first.context()), await web.open(first.context())];
    const keys = await Promise.all(tabs.map(openKey));
    expect(new Set(keys.map(({ did }) => did)).size).toBe(1);
  });

  it('exportKey works once; after that no script can read the key', async () => {
    const page = await web.open();
    const { did } = await openKey(page);
    const text = await exportKey(page);
    expect(signerFromPrivateKey(text).did).toBe(did);
    expect(await exportKey(page)).toBe('not exported: key_not_exportable');
    expect(await openKey(page)).toEqual({ did, canExport: false });
    expect(await readSecrets(page)).toEqual(['sealed']);
  });

  it('importBrowserKey stores a key of another browser, not exportable', async () => {
    const page = await web.open();
    const { did } = await openKey(page);
    const text = await exportKey(page);
    const other = await web.open();
    expect(await importKey(other, 'invalid')).toBe('not imported: key_invalid');
    expect(await importKey(other, ` ${text}\n`)).toBe(did);
    expect(await openKey(other)).toEqual({ did, canExport: false });
    expect(await readSecrets(other)).toEqual(['sealed']);
  });
});

describe('createOracleClient on a page of another origin', () => {
  /** Uses sessions, a stream, events, a delegation and an error. */
  const converse = (page: Page, url: string) =>
    page.evaluate(async (oracle) => {
      const { addPart, createOracleClient, emptyTurn, openBrowserSigner } = sibyl;
      const signer = await openBrowserSigner();
      const client = createOracleClient({ url: oracle, signer });
      const { sessionId } = await client.sessions.create();
      let turn = emptyTurn;
      for await (const part of client.stream(sessionId, 'hello')) turn = addPart(turn, part);
      const events = client.events(sessionId);
      await events.ready();
      const { connected } = await events.status();
      await client.delegation.grant({ capabilities: [{ can: 'store/*', with: signer.did }] });
      const { authorized } = await client.delegation.status();
      const missing = await client.messages.list('nowhere').catch((error) => error);
      await client.sessions.delete(sessionId);
      client.close();
      return { status: turn.status, connected, authorized, requestId: missing.requestId };
    }, url);

  it.each([
    ['every origin', () => '*'],
    ['only this origin', () => web.origin],
  ])('works if CORS_ORIGIN allows %s', async (_, origin) => {
    host = await startHost({ env: { CORS_ORIGIN: origin() } });
    expect(await converse(await web.open(), host.url)).toEqual({
      status: 'finished',
      connected: true,
      authorized: true,
      requestId: expect.stringMatching(/^[\w-]{36}$/),
    });
  });

  it('fails if CORS_ORIGIN allows only other origins', async () => {
    host = await startHost({ env: { CORS_ORIGIN: 'https://elsewhere.example' } });
    await expect(converse(await web.open(), host.url)).rejects.toThrow(/Cannot reach/);
  });
});
