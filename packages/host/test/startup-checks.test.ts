import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createOracleApp } from '@sibyl/host';
import { generateSigner, type Signer, signerFromMnemonic } from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, describe, expect, it } from 'vitest';
import { OLDER_VARIABLES } from '../src/config/environment.js';
import { startHost, type TestHost } from './support/host.js';

const ORACLE_MNEMONIC = 'the key behind an ORACLE_DID';
const key = signerFromMnemonic(ORACLE_MNEMONIC).ok as Signer;
const opened: (TestHost | Server)[] = [];

afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
});

async function start(env: Record<string, string>): Promise<TestHost> {
  const host = await startHost({ env });
  opened.push(host);
  return host;
}

const warnings = ({ log }: TestHost) =>
  log.filter(({ level }) => Number(level) >= 40).map(({ msg }) => String(msg));

const namedOrigin = { HOST: '0.0.0.0', CORS_ORIGIN: 'https://chat.example' };

describe('CORS_ORIGIN=*', () => {
  it.each([
    ['causes a warning on a public address', { HOST: '0.0.0.0' }, 1],
    ['causes no warning on a loopback address', { HOST: '127.0.0.1' }, 0],
    ['causes no warning with named origins', namedOrigin, 0],
  ])('%s', async (_, env, count) => {
    const host = await start(env);
    expect(warnings(host).filter((text) => text.includes('CORS_ORIGIN=*'))).toHaveLength(count);
  });
});

describe('DELEGATION_LOGIN_MAX_DAYS', () => {
  it.each([
    ['unset causes a warning on a public address', {}, 1],
    ['causes none', { DELEGATION_LOGIN_MAX_DAYS: '30' }, 0],
    ['unset causes none without such logins', { UCAN_ALLOW_DELEGATION_LOGIN: 'false' }, 0],
    ['unset causes none on a loopback address', { HOST: '127.0.0.1' }, 0],
  ])('%s', async (_, env, count) => {
    const host = await start({ ...namedOrigin, ...env });
    const isAdvice = (text: string) => text.includes('DELEGATION_LOGIN_MAX_DAYS=30');
    expect(warnings(host).filter(isAdvice)).toHaveLength(count);
  });
});

it('names variables of an older host, and what to set instead', async () => {
  const old = {
    OPEN_ROUTER_API_KEY: 'sk-secret',
    REDIS_URL: 'redis://127.0.0.1',
    SLACK_BOT_OAUTH_TOKEN: 'x',
  };
  const texts = warnings(await start(old));
  const about = (name: string) => texts.find((text) => text.startsWith(`${name} has no effect`));
  expect(about('OPEN_ROUTER_API_KEY')).toContain('MODEL_API_KEY');
  expect(about('REDIS_URL')).toContain('DATABASE_URL');
  expect(about('SLACK_BOT_OAUTH_TOKEN')).toContain('SLACK_BOT_TOKEN');
  expect(texts.join()).not.toContain('sk-secret');
  expect(warnings(await start({})).join()).not.toContain('has no effect');
});

it.each(Object.entries(OLDER_VARIABLES))('docs/deploying.md lists %s', (name, advice) => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/deploying.md'), 'utf8');
  expect(page).toContain(`| \`${name}\` | ${advice} |`);
});

describe('ORACLE_DID', () => {
  /** Serves a DID document that lists one key. */
  async function serveDocument(listed: Signer, status = 200): Promise<string> {
    const server = createServer((_, response) => {
      const id = `${did}#key`;
      const publicKeyMultibase = listed.keyDid.slice('did:key:'.length);
      const method = { id, type: 'Multikey', controller: did, publicKeyMultibase };
      const document = { id: did, verificationMethod: [method], assertionMethod: [id] };
      response.writeHead(status).end(JSON.stringify(document));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    opened.push(server);
    const did = `did:web:127.0.0.1%3A${(server.address() as AddressInfo).port}`;
    return did;
  }

  it('causes no warning if its document lists the key of the oracle', async () => {
    const host = await start({ ORACLE_MNEMONIC, ORACLE_DID: await serveDocument(key) });
    expect(warnings(host).filter((text) => text.includes('ORACLE_DID'))).toEqual([]);
  });

  it('prevents the start if its document lists another key', async () => {
    const ORACLE_DID = await serveDocument(generateSigner());
    const { dataDir } = await start({});
    const app = await createOracleApp({
      env: { PORT: '0', DATA_DIR: `${dataDir}/other`, ORACLE_MNEMONIC, ORACLE_DID },
      logger: pino({ level: 'silent' }),
    });
    await expect(app.listen()).rejects.toMatchObject({
      name: 'ConfigError',
      message: expect.stringMatching(
        new RegExp(`ORACLE_DID \\(host\\): .*does not list the oracle's key\\n.*${key.keyDid}`),
      ),
    });
  });

  it('causes a warning if its document cannot be read', async () => {
    const host = await start({ ORACLE_MNEMONIC, ORACLE_DID: await serveDocument(key, 503) });
    await expect
      .poll(() => warnings(host).join())
      .toMatch(/ORACLE_DID.*until the document of did:/);
  });

  it('causes no warning if the host serves its document itself', async () => {
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address() as AddressInfo;
    await new Promise((resolve) => probe.close(resolve));
    const host = await start({
      ORACLE_MNEMONIC,
      ORACLE_DID: `did:web:127.0.0.1%3A${port}`,
      PORT: String(port),
    });
    const asked = () => JSON.stringify(host.log).includes('did.json');
    await expect.poll(asked).toBe(true);
    expect(warnings(host).filter((text) => text.includes('ORACLE_DID'))).toEqual([]);
  });
});
