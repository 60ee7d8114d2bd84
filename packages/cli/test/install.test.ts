import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { OracleCard } from '@sibyl/protocol';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { tarballs } from '../src/commands/new.js';
import { killProcessGroup } from './support/kill-process-group.js';
import { MAIN, useFolder } from './support/sibyl.js';

// Packages come from npm's cache or, on a new machine, from the registry.
const TIMEOUT_MS = 600_000;

const folder = useFolder();
const demo = join(folder, 'demo');
const packages = join(folder, 'packages');

/** The environment of a user who has none of our packages. */
const env = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value = '']) => {
    if (name === 'PATH') return [[name, withoutOurCommands(value)]];
    return /^(HOME|TMPDIR|.*_proxy|NODE_EXTRA_CA_CERTS|npm_config_(registry|cache))$/i.test(name)
      ? [[name, value]]
      : [];
  }),
);

function withoutOurCommands(path: string): string {
  const isOurs = (place: string) =>
    place.includes('node_modules') || place.includes('node-gyp-bin');
  return path
    .split(delimiter)
    .filter((place) => !isOurs(place))
    .join(delimiter);
}

/** From the new project on, nothing may be downloaded. */
const OFFLINE = {
  npm_config_registry: 'http://127.0.0.1:9',
  npm_config_cache: join(folder, 'empty-cache'),
  npm_config_fetch_retries: '0',
};

/** Runs a command to its end; fails with what it wrote. */
function run(cwd: string, command: string, ...args: string[]): string {
  const options = { cwd, env, encoding: 'utf8', timeout: TIMEOUT_MS } as const;
  const { status, stdout, stderr } = spawnSync(command, args, options);
  expect({ status, output: status === 0 ? '' : stdout + stderr }).toEqual({
    status: 0,
    output: '',
  });
  return stdout;
}

/** Runs the installed command on this Node, since the one of the system may be too old. */
async function runSibyl(...args: string[]) {
  const child = spawn(process.execPath, ['node_modules/@sibyl/cli/bin/sibyl.js', ...args], {
    cwd: folder,
    env: { ...env, SIBYL_KEY_FILE: join(folder, 'key') },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { stdout, stderr, code: child.exitCode ?? (await once(child, 'exit'))[0] };
}

/** Serves what a client reads of an oracle before it signs. */
async function serveOracleCard(card: OracleCard): Promise<string> {
  const server = createServer((_, response) => response.end(JSON.stringify(card)));
  onTestFinished(() => void server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

beforeAll(() => {
  const pack = spawnSync(process.execPath, ['scripts/pack.ts', packages], { encoding: 'utf8' });
  expect(pack.status, pack.stderr).toBe(0);
  const overrides = tarballs(packages);
  const manifest = { private: true, dependencies: { '@sibyl/cli': overrides['@sibyl/cli'] } };
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, overrides }));
  run(folder, 'npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts');
}, TIMEOUT_MS);

it('sibyl key and sibyl token work without @sibyl/host', { timeout: TIMEOUT_MS }, async () => {
  expect(existsSync(join(folder, 'node_modules/@sibyl/host'))).toBe(false);
  const { packages: installed } = JSON.parse(
    readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8'),
  );
  expect(Object.keys(installed).length).toBeLessThan(30);
  const did = (await runSibyl('key')).stdout.trim();
  expect(did).toMatch(/^did:key:z/);
  const url = await serveOracleCard({ did, name: 'Elsewhere', version: '0.1.0', features: [] });
  const token = await runSibyl('token', url, '--json');
  expect(JSON.parse(token.stdout)).toMatchObject({ issuer: did, audience: did });
});

it.each([
  ['start', '@sibyl/host'],
  ['gateway', '@sibyl/gateway'],
])('sibyl %s without %s says how to install it', async (command, name) => {
  const { code, stderr } = await runSibyl(command);
  expect([code, stderr]).toEqual([1, expect.stringContaining(`Run "npm install ${name}@`)]);
});

it('sibyl new --packages uses tarballs', { timeout: TIMEOUT_MS }, () => {
  run(folder, 'npx', 'sibyl', 'new', 'given', '--packages', packages, '--no-install');
  const manifest = readFileSync(join(folder, 'given/package.json'), 'utf8');
  expect(JSON.parse(manifest).dependencies['@sibyl/host']).toContain(packages);
});

it('sibyl new of a checkout packs its packages into the project, without a registry and with an empty cache', {
  timeout: TIMEOUT_MS,
}, () => {
  Object.assign(env, OFFLINE);
  const said = run(folder, process.execPath, MAIN, 'new', 'demo');
  const lock = JSON.parse(readFileSync(join(demo, 'package-lock.json'), 'utf8'));
  expect(lock.packages['node_modules/zod'].integrity).toMatch(/^sha512-/);
  expect(said).toContain(`Made ${demo}`);
  const { dependencies, overrides } = JSON.parse(readFileSync(join(demo, 'package.json'), 'utf8'));
  expect(dependencies['@sibyl/host']).toMatch(/^file:\.\/packages\/sibyl-host-.*\.tgz$/);
  expect(Object.keys(overrides)).toContain('@sibyl/protocol');
  expect(existsSync(join(demo, 'node_modules/@sibyl/web/dist/index.html'))).toBe(true);
  for (const name of ['host', 'plugin-kit', 'plugin-memory'])
    expect(existsSync(join(demo, `node_modules/@sibyl/${name}/LICENSE`))).toBe(true);
});

it('npm test passes in the new project, with decorators, and checks the types of tests', {
  timeout: TIMEOUT_MS,
}, () => {
  writeFileSync(join(demo, 'test/decorators.test.ts'), DECORATED);
  expect(run(demo, 'npm', 'test')).toMatch(/Tests.* passed/);
  const wrong = join(demo, 'test/wrong.test.ts');
  writeFileSync(wrong, `export const count: number = 'many';\n`);
  const { status, stdout } = spawnSync('npm', ['test'], { cwd: demo, env, encoding: 'utf8' });
  rmSync(wrong);
  expect([status, stdout]).toEqual([expect.any(Number), expect.stringContaining('TS2322')]);
  expect(status).not.toBe(0);
});

it('the new project lists what the examples of the docs import, and the types of all packages resolve', {
  timeout: TIMEOUT_MS,
}, () => {
  const pages = ['README.md', ...globSync('docs/**/*.md')].map((path) =>
    readFileSync(path, 'utf8'),
  );
  const blocks = pages.flatMap((page) => [...page.matchAll(/```tsx?\n(.*?)```/gs)]);
  // Examples that show a file of the checkout, or import one, compile there.
  const own = blocks.filter(([, code = '']) => !/^\/\/ \S+\.ts\n|from '\./m.test(code));
  expect(own.length).toBeGreaterThan(5);
  mkdirSync(join(demo, 'test/docs'));
  for (const [i, [, code = '']] of own.entries())
    writeFileSync(join(demo, `test/docs/${i}.tsx`), code);
  run(demo, 'npm', 'run', 'check', '--', '--skipLibCheck', 'false');
  rmSync(join(demo, 'test/docs'), { recursive: true });
});

it('npm run dev in the new project restarts the oracle on a change', {
  timeout: TIMEOUT_MS,
}, async () => {
  const npm = startNpm('run', 'dev');
  await expect.poll(() => npm.output, { timeout: 240_000 }).toMatch(/talk to it at http/);
  const main = join(demo, 'src/main.ts');
  const before = readFileSync(main, 'utf8');
  writeFileSync(main, `console.log('changed');\n${before}`);
  await expect.poll(() => npm.output, { timeout: 240_000 }).toMatch(/changed.*talk to it at/s);
  writeFileSync(main, before);
  killProcessGroup(npm.child);
});

it('sibyl doctor works in the new project', { timeout: TIMEOUT_MS }, () => {
  const { checks } = JSON.parse(run(demo, 'npx', 'sibyl', 'doctor', '--json'));
  expect(checks[0]).toMatchObject({ state: 'ok', text: expect.stringContaining('demo') });
  run(demo, 'npm', 'run', 'doctor');
  const listed = run(demo, 'npx', 'sibyl', 'plugins', '--plugins', 'dist/plugins.js');
  expect(listed).toMatch(/^dice +\S+ +loaded/m);
});

it('npm start in the new project serves the chat page until SIGTERM', {
  timeout: TIMEOUT_MS,
}, async () => {
  const npm = startNpm('start');
  const address = /talk to it at (http:[^\s",]+)/;
  await expect.poll(() => npm.output, { timeout: 120_000 }).toMatch(address);
  const page = await fetch(address.exec(npm.output)?.[1] ?? '');
  expect(await page.text()).toContain('<script type="module"');
  npm.child.kill('SIGTERM');
  await npm.ended;
  expect(npm.output).toContain('stopping');
});

/** Runs npm in the new project until the end of the test. */
function startNpm(...args: string[]) {
  const child = spawn('npm', args, {
    cwd: demo,
    env: { ...env, PORT: '0' },
    stdio: 'pipe',
    detached: true,
  });
  const started = { child, output: '', ended: once(child, 'close') };
  onTestFinished(() => killProcessGroup(child));
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (chunk) => {
      started.output += chunk;
    });
  return started;
}

/** Needs experimentalDecorators and emitDecoratorMetadata, in the compiler and in Vitest. */
const DECORATED = `import 'reflect-metadata';
import { Controller, Get, Injectable } from '@nestjs/common';
import { expect, it } from 'vitest';

@Injectable()
class Clock {}

@Controller('time')
class TimeController {
  constructor(readonly clock: Clock) {}

  @Get()
  read(): number {
    return 0;
  }
}

it('has metadata', () => {
  expect(Reflect.getMetadata('design:paramtypes', TimeController)).toEqual([Clock]);
});
`;
