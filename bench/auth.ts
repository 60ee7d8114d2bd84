// How fast callers are authenticated: our verifier compared with stock ucanto, and the whole host with its public route.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOracleApp } from '@sibyl/host';
import { createDidKeyResolver, createVerifier, generateSigner } from '@sibyl/ucan';
import { Delegation } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { capability, claim, URI } from '@ucanto/validator';
import { pino } from 'pino';
import { atLeast, type Figure, formatFigures, median, reportFigures } from './support/figures.ts';
import { sendRequests } from './support/http-load.ts';
import { mintTokens } from './support/server-process.ts';

const ROUNDS = 5;
const TOKENS_PER_ROUND = 1000;
const LEAST_COLD = 5;
const CONNECTIONS = 16;
/** Requests over HTTP; for a cold cache each has its own token. */
const UNSEEN = 5000;

const oracle = generateSigner();

async function perSecond(tokens: readonly string[], verify: (token: string) => Promise<unknown>) {
  const start = performance.now();
  for (const token of tokens) await verify(token);
  return tokens.length / ((performance.now() - start) / 1000);
}

async function benchVerifiers() {
  const stock = await createStockVerifier();
  const rates = { stock: [] as number[], cold: [] as number[], warm: [] as number[] };
  for (let round = 0; round <= ROUNDS; round++) {
    const tokens = mintTokens(TOKENS_PER_ROUND, oracle.did);
    const verifier = createVerifier({
      audience: oracle.did,
      resolver: createDidKeyResolver(),
      revocations: { isRevoked: () => false },
    });
    const ours = async (token: string) => {
      const { error } = await verifier.verifyInvocation(token);
      if (error) throw new Error(error.detail);
    };
    const cold = await perSecond(tokens, ours);
    const warm = await perSecond(tokens, ours);
    const stockRate = await perSecond(tokens.slice(0, TOKENS_PER_ROUND / 5), stock);
    // The first round is a warm-up.
    if (round === 0) continue;
    rates.cold.push(cold);
    rates.warm.push(warm);
    rates.stock.push(stockRate);
  }
  return { stock: median(rates.stock), cold: median(rates.cold), warm: median(rates.warm) };
}

async function benchHost() {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const env = {
    PORT: '0',
    DATA_DIR: dataDir,
    RATE_LIMIT_PER_MINUTE: '100000000',
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: '100000000',
  };
  const app = await createOracleApp({ env, logger: pino({ level: 'silent' }) });
  const url = await app.listen();
  const [known = ''] = mintTokens(1, app.did);
  const unseen = mintTokens(UNSEEN, app.did);
  const ask = (path: string, amount: number, nextToken?: () => string | undefined) =>
    requestsPerSecond({ url, path, amount, nextToken });
  try {
    await ask('/.well-known/oracle.json', UNSEEN);
    const open = await ask('/.well-known/oracle.json', UNSEEN);
    await ask('/sessions', 100, () => known);
    const warm = await ask('/sessions', UNSEEN, () => known);
    const cold = await ask('/sessions', UNSEEN, () => unseen.pop());
    return { open, warm, cold };
  } finally {
    await app.close();
    rmSync(dataDir, { recursive: true });
  }
}

interface Load {
  readonly url: string;
  readonly path: string;
  readonly amount: number;
  /** Returns the token of the next request. */
  readonly nextToken?: (() => string | undefined) | undefined;
}

async function requestsPerSecond({ url, path, amount, nextToken }: Load): Promise<number> {
  const headers = () =>
    nextToken ? { authorization: `Bearer ${nextToken()}`, 'x-auth-type': 'ucan' } : {};
  let left = amount;
  const start = performance.now();
  await sendRequests(url, CONNECTIONS, () =>
    left-- > 0 ? { path, headers: headers() } : undefined,
  );
  return amount / ((performance.now() - start) / 1000);
}

async function measure(): Promise<readonly Figure[]> {
  const { stock, cold, warm } = await benchVerifiers();
  const verifying = (name: string, rate: number) => ({
    name: `verifying a token, ${name}`,
    ours: `${Math.round(rate)}/s`,
    beside: `stock ucanto: ${Math.round(stock)}/s`,
    ratio: rate / stock,
  });
  const host = await benchHost();
  const requesting = (name: string, rate: number) => ({
    name: `GET /sessions, ${name}`,
    ours: `${Math.round(rate)}/s`,
    beside: `a public route: ${Math.round(host.open)}/s`,
    ratio: rate / host.open,
  });
  return [
    { ...verifying('never seen before', cold), target: atLeast(LEAST_COLD, cold / stock) },
    verifying('verdict cached', warm),
    requesting('verdict cached', host.warm),
    requesting('every token new', host.cold),
  ];
}

const Oracle = capability({ can: '*', with: URI.match({ protocol: 'ixo:' }) });

/** Verifies an auth token as ucanto's documentation does. */
async function createStockVerifier() {
  const authority = await ed25519.generate();
  return async (token: string): Promise<string> => {
    const { ok: delegation, error } = await Delegation.extract(Buffer.from(token, 'base64'));
    if (error) throw error;
    const access = await claim(Oracle as never, [delegation], {
      authority,
      principal: ed25519.Verifier,
      canIssue: () => true,
      validateAuthorization: () => ({ ok: {} }),
    } as never);
    if (access.error) throw access.error;
    return delegation.issuer.did();
  };
}

const figures = await measure();
console.log(formatFigures('auth', figures));
await reportFigures(figures);
