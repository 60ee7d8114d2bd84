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

/** The DID of the identity in use. */
const openKey = (page: Page) => page.evaluate(async () => (await sibyl.openBrowserSigner()).did);

const list = (page: Page) => page.evaluate(() => identities.listBrowserIdentities());

/** Evaluates a call; returns the code of its error. */
const readCode = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (error: Error) => /key_\w+/.exec(error.message)?.[0] ?? error.message,
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
    const did = await openKey(page);
    expect(did).toMatch(/^did:key:z6Mk/);
    await page.reload();
    expect(await openKey(page)).toBe(did);
    expect(await openKey(await web.open(page.context()))).toBe(did);
    expect(await openKey(await web.open())).not.toBe(did);
  });

  it('generates one key when several tabs open it at once', async () => {
    const first = await web.open();
    const tabs = [first, await web.open(first.context()), await web.open(first.context())];
    expect(new Set(await Promise.all(tabs.map(openKey))).size).toBe(1);
  });
});

describe('identities of a browser', () => {
  it('importBrowserIdentity adds an identity; activateBrowserIdentity loses none', async () => {
    const page = await web.open();
    const first = await openKey(page);
    const second = await page.evaluate(async () => {
      const { did } = await identities.createBrowserIdentity({ name: 'Field office' });
      return did;
    });
    expect(await openKey(page)).toBe(first);
    await page.evaluate((did) => identities.activateBrowserIdentity(did), second);
    await page.reload();
    expect(await openKey(page)).toBe(second);
    expect(await list(page)).toMatchObject([
      { did: second, name: 'Field office', isActive: true },
      { did: first, isActive: false },
    ]);
    await page.evaluate((did) => identities.activateBrowserIdentity(did), first);
    expect(await openKey(page)).toBe(first);
    expect(await list(page)).toHaveLength(2);
  });

  it('importBrowserIdentity of a key that is there marks it as backed up, once in the list', async () => {
    const page = await web.open();
    const did = await openKey(page);
    expect(await list(page)).toMatchObject([{ did, backedUpAt: undefined }]);
    await page.evaluate(async (own) => {
      await identities.importBrowserIdentity(await identities.exportBrowserSeed(own));
    }, did);
    expect(await list(page)).toMatchObject([{ did, backedUpAt: expect.any(Number) }]);
  });

  it('removeBrowserIdentity keeps the identity in use, and one without a backup', async () => {
    const page = await web.open();
    const first = await openKey(page);
    const remove = (did: string) =>
      readCode(page.evaluate((key) => identities.removeBrowserIdentity(key), did));
    expect(await remove(first)).not.toBe('done');
    const other = await page.evaluate(async () => (await identities.createBrowserIdentity()).did);
    expect(await remove(other)).not.toBe('done');
    expect(await list(page)).toHaveLength(2);
    await page.evaluate((did) => identities.confirmBrowserBackup(did), other);
    expect(await remove(other)).toBe('done');
    expect(await list(page)).toMatchObject([{ did: first }]);
  });

  it('a private key in text form is the same identity in Node and in the browser', async () => {
    const page = await web.open();
    const did = await openKey(page);
    const text = await page.evaluate(
      async (own) => identities.formatPrivateKey(await identities.exportBrowserSeed(own)),
      did,
    );
    expect(signerFromPrivateKey(text).did).toBe(did);
    const other = await web.open();
    const imported = await other.evaluate(
      async (key) =>
        identities.importBrowserIdentity(await identities.parsePrivateKey(` ${key}\n`)),
      text,
    );
    expect(imported.did).toBe(did);
    const invalid = other.evaluate(() => identities.parsePrivateKey('invalid'));
    await expect(invalid).rejects.toThrow('not a valid private key');
  });
});

describe('protectBrowserIdentity', () => {
  /** Chromium's own authenticator in software, which confirms every question. */
  const addAuthenticator = async (page: Page) => {
    const session = await page.context().newCDPSession(page);
    await session.send('WebAuthn.enable');
    const options = {
      protocol: 'ctap2',
      ctap2Version: 'ctap2_1',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      hasPrf: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    } as const;
    const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', { options });
    return {
      decline: () =>
        session.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: false }),
    };
  };

  it('leaves no secret in the browser that works without the passkey', async () => {
    const page = await web.open();
    // A passkey belongs to a domain, which an address is not.
    expect(await page.evaluate(() => identities.checkPasskeySupport())).toBe('address');
    await page.goto(web.origin.replace('127.0.0.1', 'localhost'));
    expect(await page.evaluate(() => identities.checkPasskeySupport())).toBeUndefined();
    const { decline } = await addAuthenticator(page);
    const did = await openKey(page);
    expect(await readSecrets(page)).toEqual(expect.arrayContaining(['readable', 'sealed']));
    await page.evaluate((own) => identities.protectBrowserIdentity(own, 'My laptop'), did);
    expect(await readSecrets(page)).toEqual([]);
    const sign = () =>
      page.evaluate(async () => {
        const signer = await sibyl.openBrowserSigner();
        const now = Math.floor(Date.now() / 1000);
        const { token } = await signer.invoke({ audience: signer.did, now });
        return { did: signer.did, isLocked: signer.isLocked, isSigned: token.length > 0 };
      });
    expect(await sign()).toEqual({ did, isLocked: true, isSigned: true });
    await page.evaluate((own) => identities.unprotectBrowserIdentity(own), did);
    expect(await sign()).toEqual({ did, isLocked: false, isSigned: true });
    await page.evaluate((own) => identities.protectBrowserIdentity(own, 'My laptop'), did);
    await decline();
    await expect(sign()).rejects.toThrow('The passkey was not confirmed');
    expect(await list(page)).toMatchObject([{ did, isProtected: true }]);
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

  it('sends no file whose upload was cancelled before it began', async () => {
    host = await startHost();
    const upload = (page: Page, url: string) =>
      page.evaluate(async (oracle) => {
        const client = sibyl.createOracleClient({
          url: oracle,
          signer: await sibyl.openBrowserSigner(),
        });
        const signal = AbortSignal.abort(new Error('cancelled'));
        const file = new File(['text'], 'a.txt');
        const stored = client.files.upload(file, { signal, onProgress: () => undefined });
        const reason = await stored.catch(({ message }) => message);
        return { reason, files: (await client.files.list()).files };
      }, url);
    expect(await upload(await web.open(), host.url)).toEqual({ reason: 'cancelled', files: [] });
  });

  it('fails if CORS_ORIGIN allows only other origins', async () => {
    host = await startHost({ env: { CORS_ORIGIN: 'https://elsewhere.example' } });
    await expect(converse(await web.open(), host.url)).rejects.toThrow(/Cannot reach/);
  });
});
