import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import {
  type Capability,
  generateSigner,
  mintAuthInvocation,
  mintDelegation,
  type Signer,
} from '@sibyl/ucan';
import { afterEach, expect, it } from 'vitest';
import { loadChainSchema } from '../../demo-chain/src/chain-schema.js';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, largeEntityParams } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const EVERYTHING = { can: 'chain/query', with: 'ixo:chain' };
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function startGated(env: Record<string, string> = {}): Promise<RunningGateway> {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], { GATEWAY_AUTH: 'ucan', ...env });
  cleanups.push(() => gateway.close());
  return gateway;
}

interface Choice {
  readonly signer?: Signer;
  readonly audience?: string;
  readonly capabilities?: readonly Capability[];
  readonly ttlSeconds?: number;
  readonly proofs?: readonly string[];
}

function mint({ gateway }: RunningGateway, choice: Choice = {}): string {
  const { signer = generateSigner(), capabilities = [EVERYTHING], ttlSeconds = 300 } = choice;
  const { ok, error } = mintDelegation({
    signer,
    audience: choice.audience ?? gateway.did ?? '',
    capabilities,
    expiration: Math.floor(Date.now() / 1000) + ttlSeconds,
    ...(choice.proofs && { proofs: choice.proofs }),
  });
  if (error) throw new Error(error.detail);
  return ok.token;
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' });

it('UcanGate admits callers with a UCAN that grants queries', async () => {
  const gateway = await startGated();
  expect(gateway.gateway.did).toMatch(/^did:key:z6Mk/);
  expect((await gateway.get(PARAMS, bearer(mint(gateway)))).status).toBe(200);
});

it('UcanGate answers 401 to missing and malformed UCANs', async () => {
  const gateway = await startGated();
  const token = mint(gateway);
  const missing = await gateway.get(PARAMS);
  expect(missing).toMatchObject({ status: 401, json: { code: 16 } });
  expect(missing.json.message).toContain('X-Auth-Type: ucan');
  expect((await gateway.get(PARAMS, { authorization: `Bearer ${token}` })).status).toBe(401);
});

it.each([
  ['for another audience', { audience: generateSigner().did }],
  ['that is expired', { ttlSeconds: -10 }],
  ['that lives too long', { ttlSeconds: 3600 }],
])('answers 401 to a UCAN %s', async (_, choice) => {
  const gateway = await startGated();
  const { status, json } = await gateway.get(PARAMS, bearer(mint(gateway, choice)));
  expect({ status, message: json.message }).toEqual({
    status: 401,
    message: 'Invalid UCAN invocation',
  });
});

it('answers 401 to a UCAN that was tampered with', async () => {
  const gateway = await startGated();
  const token = mint(gateway);
  const broken = `${token.slice(0, 100)}${token[100] === 'A' ? 'B' : 'A'}${token.slice(101)}`;
  expect((await gateway.get(PARAMS, bearer(broken))).status).toBe(401);
});

it('answers 403 to a UCAN for other things', async () => {
  const gateway = await startGated();
  const other = mint(gateway, { capabilities: [{ can: 'store/add', with: 'ixo:chain' }] });
  expect((await gateway.get(PARAMS, bearer(other))).status).toBe(403);
  const login = mintAuthInvocation({
    signer: generateSigner(),
    audience: gateway.gateway.did ?? '',
  });
  expect((await gateway.get(PARAMS, bearer(login.ok?.token ?? ''))).status).toBe(403);
});

it('keeps a UCAN to the routes it names', async () => {
  const gateway = await startGated();
  const capabilities = [{ can: 'chain/query', with: 'ixo:chain/ixo/entity/*' }];
  const headers = bearer(mint(gateway, { capabilities }));
  expect((await gateway.get(PARAMS, headers)).status).toBe(200);
  expect((await gateway.get('/ixo/token/params', headers)).status).toBe(403);
});

it('UcanGate accepts only trusted issuers', async () => {
  const operator = generateSigner();
  const user = generateSigner();
  const gateway = await startGated({ GATEWAY_UCAN_ISSUERS: operator.did });
  const alone = await gateway.get(PARAMS, bearer(mint(gateway, { signer: user })));
  expect(alone).toMatchObject({ status: 403, json: { code: 7 } });
  expect((await gateway.get(PARAMS, bearer(mint(gateway, { signer: operator })))).status).toBe(200);
  const grant = mint(gateway, { signer: operator, audience: user.did, ttlSeconds: 86_400 });
  const granted = mint(gateway, { signer: user, proofs: [grant] });
  expect((await gateway.get(PARAMS, bearer(granted))).status).toBe(200);
  const stranger = generateSigner();
  const other = mint(gateway, { signer: stranger, audience: user.did, ttlSeconds: 86_400 });
  const mixed = mint(gateway, { signer: user, proofs: [grant, other] });
  expect((await gateway.get(PARAMS, bearer(mixed))).status).toBe(403);
});

it('keeps the gateway’s DID between starts, or uses GATEWAY_DID', async () => {
  const gateway = await startGated({ GATEWAY_DID: 'did:web:gateway.example' });
  expect(gateway.gateway.did).toBe('did:web:gateway.example');
  expect((await gateway.get(PARAMS, bearer(mint(gateway)))).status).toBe(200);
});

it('ends a watch when the UCAN expires', async () => {
  const gateway = await startGated();
  const headers = bearer(mint(gateway, { ttlSeconds: 3 }));
  const response = await fetch(`${gateway.url}${PARAMS}?watch`, { headers });
  expect(response.status).toBe(200);
  expect(await response.text()).toContain('event: update');
  expect((await gateway.get(PARAMS, headers)).status).toBe(401);
});

/** Watches a large reply with a UCAN that expires soon. */
async function watchBriefly() {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  node.interrupt(({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: largeEntityParams(10_000_000), height } : undefined,
  );
  const gateway = await startGateway([node], {
    GATEWAY_AUTH: 'ucan',
    GATEWAY_METRICS_PORT: '0',
    GATEWAY_WATCH_STALL_SECONDS: '3',
  });
  cleanups.push(() => gateway.close());
  const socket = openWatch(gateway, bearer(mint(gateway, { ttlSeconds: 3 })));
  cleanups.push(() => socket.destroy());
  const watchers = async () => {
    const { text } = await ask(`${gateway.gateway.metricsUrl}/metrics`);
    return /^sibyl_gateway_watchers (\d+)$/m.exec(text)?.[1];
  };
  return { socket, watchers };
}

function openWatch({ url }: RunningGateway, headers: Record<string, string>): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET ${PARAMS}?watch HTTP/1.1\r\nHost: x\r\n${fields.join('')}\r\n`);
  return socket;
}

it('closes the connection of a watch that it ends: it would stay open without a time limit', async () => {
  const { socket } = await watchBriefly();
  await once(socket.resume(), 'close');
});

it('frees the slot of a watch that it ends even if the client does not read', async () => {
  const { socket, watchers } = await watchBriefly();
  socket.pause();
  await expect.poll(watchers).toBe('1');
  await expect.poll(watchers, { timeout: 20_000 }).toBe('0');
});

it('limits each DID by itself', async () => {
  const gateway = await startGated({ GATEWAY_RATE_LIMIT_PER_MINUTE: '1' });
  const ann = generateSigner();
  expect((await gateway.get(PARAMS, bearer(mint(gateway, { signer: ann })))).status).toBe(200);
  expect((await gateway.get(PARAMS, bearer(mint(gateway, { signer: ann })))).status).toBe(429);
  expect((await gateway.get(PARAMS, bearer(mint(gateway)))).status).toBe(200);
});

it('admits valid UCANs, known and new, from an address that keeps failing', async () => {
  const gateway = await startGated();
  const known = mint(gateway);
  const statusWith = async (token: string) => (await gateway.get(PARAMS, bearer(token))).status;
  expect(await statusWith(known)).toBe(200);
  await expect.poll(() => statusWith('junk'), { interval: 0, timeout: 60_000 }).toBe(429);
  expect(await statusWith(known)).toBe(200);
  expect(await statusWith(mint(gateway))).toBe(200);
});

it('looks up 60 did:ixo at a time', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], { GATEWAY_AUTH: 'ucan' });
  cleanups.push(() => gateway.close());
  const key = generateSigner();
  let lookups = 0;
  const gate = Promise.withResolvers<void>();
  node.interrupt(async ({ method }) => {
    if (method !== 'ixo.iid.v1beta1.Query/IidDocument') return undefined;
    lookups += 1;
    await gate.promise;
    return undefined;
  });
  const buildHeaders = Array.from({ length: 60 }, (_, i) => {
    const { ok: signer } = key.withDid(`did:ixo:ixo1caller${i}`);
    return bearer(mint(gateway, { signer: signer as Signer }));
  });
  const queryService = buildHeaders.map((headers) => gateway.get(PARAMS, headers));
  // Each lookup may be retried, so there can be more.
  await expect.poll(() => lookups, { timeout: 60_000 }).toBeGreaterThanOrEqual(60);
  gate.resolve();
  await Promise.all(queryService);
  expect(gateway.log.filter(({ reason }) => reason === 'did_busy')).toEqual([]);
});

it('does not charge the address for a caller over its own limit', async () => {
  const gateway = await startGated({ GATEWAY_RATE_LIMIT_PER_MINUTE: '2' });
  const greedy = bearer(mint(gateway));
  const statuses = await Promise.all(
    Array.from({ length: 40 }, async () => (await gateway.get(PARAMS, greedy)).status),
  );
  expect(statuses).toContain(429);
  expect((await gateway.get(PARAMS, bearer(mint(gateway)))).status).toBe(200);
});

it('finds the keys of a did:ixo on the chain behind it, and the reason of a refusal in the log alone', async () => {
  const gateway = await startGated();
  const signer = generateSigner().withDid('did:ixo:ixo1nobody');
  if (signer.error) throw new Error(signer.error.detail);
  const { status, text } = await gateway.get(PARAMS, bearer(mint(gateway, { signer: signer.ok })));
  expect(status).toBe(401);
  expect(text).not.toContain('did:ixo');
  const refusal = gateway.log.find(({ msg }) => msg === 'caller rejected');
  expect(refusal).toMatchObject({ reason: 'did_not_found', did: 'did:ixo:ixo1nobody' });
});

it('keeps no ?watch slot for a client that left while its UCAN was checked', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], { GATEWAY_AUTH: 'ucan', GATEWAY_METRICS_PORT: '0' });
  cleanups.push(() => gateway.close());
  const key = generateSigner();
  const did = 'did:ixo:ixo1leaver';
  const signer = key.withDid(did);
  if (signer.error) throw new Error(signer.error.detail);
  const gate = Promise.withResolvers<void>();
  let lookups = 0;
  node.interrupt(async ({ method, height = 100 }) => {
    if (method !== 'ixo.iid.v1beta1.Query/IidDocument') return undefined;
    lookups += 1;
    await gate.promise;
    return { message: findDocument(did, key.did.slice('did:key:'.length)), height };
  });
  const headers = bearer(mint(gateway, { signer: signer.ok }));
  const socket = openWatch(gateway, headers);
  await expect.poll(() => lookups).toBe(1);
  const left = once(socket, 'close');
  socket.destroy();
  await left;
  // The gateway has noticed once it has answered on a connection that came later.
  await gateway.get('/health');
  gate.resolve();
  expect((await gateway.get(PARAMS, headers)).status).toBe(200);
  const { text } = await ask(`${gateway.gateway.metricsUrl}/metrics`);
  expect(text).toMatch(/^sibyl_gateway_watchers 0$/m);
});

/** QueryIidDocumentResponse with one key. */
function findDocument(id: string, publicKeyMultibase: string): Uint8Array {
  const method = { id: `${id}#key`, controller: id, publicKeyMultibase };
  const verificationMethod = [{ ...method, type: 'Ed25519VerificationKey2020' }];
  const iidDocument = { id, verificationMethod, authentication: [method.id] };
  return loadChainSchema().encode('ixo.iid.v1beta1.QueryIidDocumentResponse', { iidDocument });
}
