// Runs Schemathesis against a real host and a real gateway: it derives requests from their API documents and checks every response.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { buildIfChanged, MAIN } from './build.ts';

const VERSION = '4.32.5';
const VENV = `node_modules/.cache/sibyl/schemathesis-${VERSION}`;
const SKIPPED = 77;
const TOKEN_SECONDS = 24 * 60 * 60;
const NO_LIMIT = '1000000000';

interface Service {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

const services: Readonly<Record<string, (folder: string) => Promise<Service>>> = {
  host: startHost,
  gateway: startGateway,
};

const { values, positionals } = parseArgs({
  options: { 'max-examples': { type: 'string', default: '30' }, seed: { type: 'string' } },
  allowPositionals: true,
});

process.exitCode = await main();

async function main(): Promise<number> {
  const reason = installSchemathesis();
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

/** Installs the pinned version once; returns the reason if that fails. */
function installSchemathesis(): string | undefined {
  if (existsSync(join(VENV, 'installed'))) return undefined;
  const steps = [
    ['python3', '-m', 'venv', VENV],
    [`${VENV}/bin/pip`, 'install', '--quiet', `schemathesis==${VERSION}`],
    ['touch', join(VENV, 'installed')],
  ];
  for (const [command = '', ...args] of steps) {
    const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' });
    if (status === 0) continue;
    const cause = error?.message ?? stderr.trim().split('\n').at(-1);
    return `"${[command, ...args].join(' ')}" failed: ${cause}`;
  }
  return undefined;
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

async function runSchemathesis(name: string, { url, headers }: Service): Promise<number> {
  mkdirSync('test-output', { recursive: true });
  const config = resolve(`scripts/conformance/${name}.toml`);
  const child = spawn(
    resolve(VENV, 'bin/schemathesis'),
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
async function startHost(folder: string): Promise<Service> {
  const service = await startProcess([MAIN], {
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
function startGateway(folder: string): Promise<Service> {
  const args = ['--import', './scripts/demo-chain.ts', 'packages/gateway/dist/main.js'];
  return startProcess(args, { GATEWAY_PORT: '0', DATA_DIR: folder });
}

async function startProcess(
  args: readonly string[],
  env: Record<string, string>,
): Promise<Service> {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, args, {
    env: { PATH, HOME, LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { url: await readAddress(child, ended), headers: {}, stop };
}

async function readAddress(child: ChildProcess, ended: Promise<unknown>): Promise<string> {
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    output = `${output}${chunk}`.slice(-65_536);
  });
  for (;;) {
    const [, url] = /listening on (http:[^\s",]+)/.exec(output) ?? [];
    if (url) return url;
    if (child.exitCode !== null) throw new Error(`The process did not start:\n${output}`);
    await Promise.race([once(child.stdout ?? child, 'data'), ended]);
  }
}
