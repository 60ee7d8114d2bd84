// Runs Schemathesis against a real host and a real gateway: it derives requests from their API documents and checks every response.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { buildIfChanged, MAIN } from './build.ts';
import { getVenv, installPython, type Service, SKIPPED, startService } from './third-party.ts';

const SCHEMATHESIS = { name: 'schemathesis', version: '4.32.5' };
const TOKEN_SECONDS = 24 * 60 * 60;
const NO_LIMIT = '1000000000';

interface CheckedService extends Service {
  readonly headers: Readonly<Record<string, string>>;
}

const services: Readonly<Record<string, (folder: string) => Promise<CheckedService>>> = {
  host: startHost,
  gateway: startGateway,
};

const { values, positionals } = parseArgs({
  options: { 'max-examples': { type: 'string', default: '30' }, seed: { type: 'string' } },
  allowPositionals: true,
});

process.exitCode = await main();

async function main(): Promise<number> {
  const reason = installPython(SCHEMATHESIS);
  if (reason) {
    console.log(`Schemathesis skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  let failed = 0;
  for (const name of positionals.length > 0 ? positionals : Object.keys(services))
    if ((await check(name)) !== 0) failed++;
  return failed === 0 ? 0 : 1;
}

async function check(name: string): Promise<number> {
  const start = services[name];
  if (!start) throw new Error(`Unknown service "${name}": choose host or gateway`);
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-schemathesis-'));
  const service = await start(folder);
  try {
    return await runSchemathesis(name, service);
  } finally {
    await service.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runSchemathesis(name: string, { url, headers }: CheckedService): Promise<number> {
  mkdirSync('test-output', { recursive: true });
  const config = resolve(`scripts/conformance/${name}.toml`);
  const child = spawn(
    resolve(getVenv(SCHEMATHESIS), 'bin/schemathesis'),
    [
      ...['--config-file', config, 'run', `${url}/docs/openapi.json`],
      ...['--checks', 'all', '--phases', 'examples,coverage,fuzzing,stateful'],
      ...['--max-examples', values['max-examples'], '--continue-on-failure'],
      ...['--report-junit-path', `schemathesis-${name}.xml`],
      ...(values.seed ? ['--seed', values.seed] : []),
      ...Object.entries(headers).flatMap(([header, value]) => ['--header', `${header}: ${value}`]),
    ],
    // It writes caches to its working directory.
    { cwd: 'test-output', stdio: ['ignore', 'inherit', 'inherit'] },
  );
  const [code] = await once(child, 'close');
  return code ?? 1;
}

/** The host as operators run it, with a token that is valid for the whole run. */
async function startHost(folder: string): Promise<CheckedService> {
  const service = await startService([MAIN], {
    PORT: '0',
    DATA_DIR: folder,
    UCAN_AUTH_MAX_TTL_SECONDS: String(TOKEN_SECONDS),
    RATE_LIMIT_PER_MINUTE: NO_LIMIT,
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: NO_LIMIT,
    SESSIONS_PER_USER: '0',
  });
  const { generateSigner, mintAuthInvocation } = await import('@sibyl/ucan');
  const card = await (await fetch(`${service.url}/.well-known/oracle.json`)).json();
  const { did } = card as { did: string };
  const { ok, error } = mintAuthInvocation({
    signer: generateSigner(),
    audience: did,
    ttlSeconds: TOKEN_SECONDS,
  });
  if (error) throw new Error(error.detail);
  return { ...service, headers: { Authorization: `Bearer ${ok.token}`, 'X-Auth-Type': 'ucan' } };
}

/** The gateway with the demo chain. */
async function startGateway(folder: string): Promise<CheckedService> {
  const args = ['--import', './scripts/demo-chain.ts', 'packages/gateway/dist/main.js'];
  const service = await startService(args, { GATEWAY_PORT: '0', DATA_DIR: folder });
  return { ...service, headers: {} };
}
