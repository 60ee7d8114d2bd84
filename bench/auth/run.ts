// How fast callers are proven: our verifier beside stock ucanto, and the whole host beside its public route.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOracleApp } from '@sibyl/host';
import { createDidKeyResolver, createVerifier, generateSigner } from '@sibyl/ucan';
import { pino } from 'pino';
import { askOverHttp } from '../parts/ask-over-http.ts';
import { atLeast, type Figure, tell } from '../parts/figure.ts';
import { figureTable } from '../parts/figure-table.ts';
import { median } from '../parts/median.ts';
import { mintTokens } from '../parts/mint-tokens.ts';
import { createStockVerifier } from './stock-verifier.ts';

const ROUNDS = 5;
const TOKENS_PER_ROUND = 1000;
const LEAST_COLD = 5;
const CONNECTIONS = 16;
/** Requests over HTTP, each with a token of its own where the verdict is to be cold. */
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
    const slow = await perSecond(tokens.slice(0, TOKENS_PER_ROUND / 5), stock);
    // The first round only warms up the machine.
    if (round === 0) continue;
    rates.cold.push(cold);
    rates.warm.push(warm);
    rates.stock.push(slow);
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
  const ask = (path: string, amount: number, bearerOf?: () => string | undefined) =>
    requestsPerSecond({ url, path, amount, bearerOf });
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
  /** The token of each request, in the order they are sent. */
  readonly bearerOf?: (() => string | undefined) | undefined;
}

async function requestsPerSecond({ url, path, amount, bearerOf }: Load): Promise<number> {
  const headers = () =>
    bearerOf ? { authorization: `Bearer ${bearerOf()}`, 'x-auth-type': 'ucan' } : {};
  let left = amount;
  const start = performance.now();
  await askOverHttp(url, CONNECTIONS, () =>
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
  const asking = (name: string, rate: number) => ({
    name: `GET /sessions, ${name}`,
    ours: `${Math.round(rate)}/s`,
    beside: `a public route: ${Math.round(host.open)}/s`,
    ratio: rate / host.open,
  });
  return [
    { ...verifying('never seen before', cold), target: atLeast(LEAST_COLD, cold / stock) },
    verifying('verdict cached', warm),
    asking('verdict cached', host.warm),
    asking('every token new', host.cold),
  ];
}

const figures = await measure();
console.log(figureTable('auth', figures));
await tell(figures);
