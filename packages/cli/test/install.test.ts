import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { OracleCard } from '@sibyl/protocol';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { tarballs } from '../src/commands/new.js';
import { killProcessGroup } from './support/kill-process-group.js';
import { useFolder } from './support/sibyl.js';

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

it('sibyl new makes a project from packed packages', { timeout: TIMEOUT_MS }, () => {
  const said = run(folder, 'npx', 'sibyl', 'new', 'demo', '--packages', packages);
  expect(said).toContain(`Made ${demo}`);
  expect(existsSync(join(demo, 'node_modules/@sibyl/web/dist/index.html'))).toBe(true);
});

it('npm test passes in the new project', { timeout: TIMEOUT_MS }, () => {
  expect(run(demo, 'npm', 'test')).toMatch(/Tests.* passed/);
});

it('sibyl doctor works in the new project', { timeout: TIMEOUT_MS }, () => {
  const { checks } = JSON.parse(run(demo, 'npx', 'sibyl', 'doctor', '--json'));
  expect(checks[0]).toMatchObject({ state: 'ok', text: expect.stringContaining('demo') });
});

it('npm start in the new project serves the chat page until SIGTERM', {
  timeout: TIMEOUT_MS,
}, async () => {
  const npm = spawn('npm', ['start'], {
    cwd: demo,
    env: { ...env, PORT: '0' },
    stdio: 'pipe',
    detached: true,
  });
  const ended = once(npm, 'close');
  onTestFinished(() => killProcessGroup(npm));
  let output = '';
  for (const stream of [npm.stdout, npm.stderr])
    stream.setEncoding('utf8').on('data', (chunk) => {
      output += chunk;
    });
  const address = /talk to it at (http:[^\s",]+)/;
  await expect.poll(() => output, { timeout: 120_000 }).toMatch(address);
  const page = await fetch(address.exec(output)?.[1] ?? '');
  expect(await page.text()).toContain('<script type="module"');
  npm.kill('SIGTERM');
  await ended;
  expect(output).toContain('stopping');
});
