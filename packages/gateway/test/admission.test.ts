import {
  createDidKeyResolver,
  createVerifier,
  type DidResolver,
  generateSigner,
  mintDelegation,
  type Signer,
} from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { Admission } from '../src/auth/admission.js';
import { UcanGate } from '../src/auth/ucan-gate.js';
import { loadConfig } from '../src/config/config.js';

const GATEWAY = generateSigner().did;
const ADDRESS = '198.51.100.7';
/** One for all, since a UCAN must not outlive its proof. */
const EXPIRATION = Math.floor(Date.now() / 1000) + 600;
const key = generateSigner();

/** An admission by UCAN whose lookups of did:web are answered by `resolve`. */
function admissionWith(did: DidResolver) {
  const offline = createDidKeyResolver();
  const reasons: unknown[] = [];
  const write = (fields: object) => void reasons.push((fields as { reason?: unknown }).reason);
  const verifier = createVerifier({
    audience: GATEWAY,
    resolver: {
      resolve: (name) => (name.startsWith('did:key:') ? offline : did).resolve(name),
      needsLookup: (name) => did.needsLookup?.(name) ?? true,
    },
    revocations: { isRevoked: () => false },
  });
  const logger = { debug: write, info: write, warn: write, error: write };
  const gate = new UcanGate({ verifier, issuers: ['*'], logger });
  const config = loadConfig({ GATEWAY_UPSTREAMS: 'grpc://a:9090', GATEWAY_AUTH: 'ucan' });
  const admission = new Admission(gate, config);
  const statusWith = async (token: string, address = ADDRESS): Promise<number> => {
    const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
    try {
      await admission.admit({ headers, address });
      return 200;
    } catch (error) {
      return (error as { status: number }).status;
    }
  };
  return { statusWith, reasons };
}

let names = 0;
/** A signer whose DID has to be looked up; its document may have the key of `key`. */
function webSigner(): Signer {
  names += 1;
  const { ok, error } = key.withDid(`did:web:caller${names}.example`);
  if (error) throw new Error(error.detail);
  return ok;
}

function mint(signer = generateSigner(), audience = GATEWAY, proofs?: string[]): string {
  const { ok, error } = mintDelegation({
    signer,
    audience,
    capabilities: [{ can: 'chain/query', with: 'ixo:chain' }],
    expiration: EXPIRATION,
    ...(proofs && { proofs }),
  });
  if (error) throw new Error(error.detail);
  return ok.token;
}

/** A resolver that holds every lookup until it is released. */
function heldResolver() {
  const release = Promise.withResolvers<void>();
  const lookups: string[] = [];
  const resolve = async (did: string) => {
    lookups.push(did);
    await release.promise;
    return createDidKeyResolver().resolve(key.did);
  };
  return { resolve, lookups, release: () => release.resolve() };
}

const tally = (statuses: readonly number[]) =>
  Object.fromEntries(
    [...new Set(statuses)].map((status) => [status, statuses.filter((s) => s === status).length]),
  );

it.each([
  ['plain UCANs', () => mint(webSigner())],
  [
    'UCANs with a proof',
    () => {
      const user = generateSigner();
      return mint(user, GATEWAY, [mint(webSigner(), user.did)]);
    },
  ],
])('Admission.admit lets 200 simultaneous callers with valid %s pass', async (_, mintOne) => {
  const resolver = heldResolver();
  const { statusWith } = admissionWith(resolver);
  const statuses = Array.from({ length: 200 }, () => statusWith(mintOne()));
  const all = Promise.all(statuses);
  let settled = 0;
  for (const status of statuses) void status.then(() => (settled += 1));
  await expect.poll(() => resolver.lookups.length + settled, { timeout: 60_000 }).toBe(200);
  resolver.release();
  expect(tally(await all)).toEqual({ 200: 200 });
});

it('Admission.admit caps verifications in flight, 429 for an address and 503 for all', async () => {
  const resolver = heldResolver();
  const { statusWith } = admissionWith(resolver);
  const first = Array.from({ length: 256 }, () => statusWith(mint(webSigner())));
  await expect.poll(() => resolver.lookups.length, { timeout: 60_000 }).toBe(256);
  expect(await statusWith(mint(webSigner()))).toBe(429);
  const others = Array.from({ length: 768 }, (_, i) =>
    statusWith(mint(webSigner()), `198.51.100.${100 + (i % 4)}`),
  );
  await expect.poll(() => resolver.lookups.length, { timeout: 60_000 }).toBe(1024);
  expect(await statusWith(mint(webSigner()), '198.51.100.200')).toBe(503);
  // A token that needs no lookup does not wait for those that do.
  expect(await statusWith(mint())).toBe(200);
  resolver.release();
  expect(tally(await Promise.all([...first, ...others]))).toEqual({ 200: 1024 });
  expect(await statusWith(mint(webSigner()))).toBe(200);
});

it('Admission.admit stops lookups for an address whose lookups keep failing', async () => {
  let lookups = 0;
  const resolve: DidResolver['resolve'] = async (did) => {
    lookups += 1;
    return { error: { code: 'did_not_found', detail: did } };
  };
  const { statusWith } = admissionWith({ resolve });
  let status = 0;
  for (let before = -1; before < lookups && lookups < 5000; ) {
    before = lookups;
    status = await statusWith(mint(webSigner()));
  }
  expect(status).toBe(429);
  expect(lookups).toBeGreaterThanOrEqual(300);
  expect(lookups).toBeLessThan(5000);
  expect(await statusWith(mint())).toBe(200);
  expect(await statusWith(mint(webSigner()), '198.51.100.8')).toBe(401);
});

it('Admission.admit verifies no more chains for an address whose chains keep failing', async () => {
  const wrong = generateSigner().did;
  const resolve: DidResolver['resolve'] = () => createDidKeyResolver().resolve(wrong);
  const { statusWith, reasons } = admissionWith({ resolve, needsLookup: () => false });
  const mintChain = () => {
    const user = generateSigner();
    return mint(user, GATEWAY, [mint(webSigner(), user.did)]);
  };
  let status = 0;
  while (reasons.at(-1) !== 'cost_refused' && reasons.length < 5000) {
    status = await statusWith(mintChain());
  }
  expect(status).toBe(429);
  expect(reasons.at(-1)).toBe('cost_refused');
  expect(new Set(reasons.slice(0, -1))).toEqual(new Set(['signature_invalid']));
  expect(await statusWith(mint())).toBe(200);
});

it('Admission.admit does not count a failure of the gateway itself', async () => {
  const resolve: DidResolver['resolve'] = async (did) => ({
    error: { code: 'did_busy', detail: did },
  });
  const { statusWith } = admissionWith({ resolve, needsLookup: () => false });
  const statuses = [];
  for (let i = 0; i < 200; i += 1) statuses.push(await statusWith(mint(webSigner())));
  expect(tally(statuses)).toEqual({ 503: 200 });
  expect(await statusWith('junk')).toBe(401);
});
