import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { tarballs } from '../src/commands/new.js';
import { endGroupOf } from './support/end-group-of.js';
import { useFolder } from './support/sibyl.js';

// Packages come from npm's cache or, on a new machine, from the registry.
const PATIENCE_MS = 600_000;

const folder = useFolder();
const demo = join(folder, 'demo');
const packages = join(folder, 'packages');

/** What is left of the environment of somebody who has nothing of ours. */
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
  const options = { cwd, env, encoding: 'utf8', timeout: PATIENCE_MS } as const;
  const { status, stdout, stderr } = spawnSync(command, args, options);
  expect({ status, output: status === 0 ? '' : stdout + stderr }).toEqual({
    status: 0,
    output: '',
  });
  return stdout;
}

beforeAll(() => {
  const pack = spawnSync(process.execPath, ['scripts/pack.ts', packages], { encoding: 'utf8' });
  expect(pack.status, pack.stderr).toBe(0);
  const overrides = tarballs(packages);
  const manifest = { private: true, dependencies: { '@sibyl/cli': overrides['@sibyl/cli'] } };
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, overrides }));
  run(folder, 'npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts');
}, PATIENCE_MS);

it('makes a project from packed packages', { timeout: PATIENCE_MS }, () => {
  const said = run(folder, 'npx', 'sibyl', 'new', 'demo', '--packages', packages);
  expect(said).toContain(`Made ${demo}`);
  expect(existsSync(join(demo, 'node_modules/@sibyl/web/dist/index.html'))).toBe(true);
});

it('whose tests pass', { timeout: PATIENCE_MS }, () => {
  expect(run(demo, 'npm', 'test')).toMatch(/Tests.* passed/);
});

it('which knows the command', { timeout: PATIENCE_MS }, () => {
  const { checks } = JSON.parse(run(demo, 'npx', 'sibyl', 'doctor', '--json'));
  expect(checks[0]).toMatchObject({ state: 'ok', text: expect.stringContaining('demo') });
});

it('and which serves the chat page until it is told to stop', {
  timeout: PATIENCE_MS,
}, async () => {
  const npm = spawn('npm', ['start'], {
    cwd: demo,
    env: { ...env, PORT: '0' },
    stdio: 'pipe',
    detached: true,
  });
  const ended = once(npm, 'close');
  onTestFinished(() => endGroupOf(npm));
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
