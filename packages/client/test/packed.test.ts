import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { rolldown } from 'rolldown';
import { expect, it, onTestFinished } from 'vitest';
import { ensureBuilt } from '../../../scripts/build.ts';

ensureBuilt();

// Other packages come from npm's cache or, on a new machine, from the registry.
const TIMEOUT_MS = 600_000;

it('npm install of the packed @sibyl/client needs @sibyl/protocol and @sibyl/ucan only, and a page can be bundled from it', {
  timeout: TIMEOUT_MS,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-client-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const npm = (cwd: string, ...args: string[]) => {
    const { status, stderr } = spawnSync('npm', args, { cwd, encoding: 'utf8' });
    expect({ status, stderr: status === 0 ? '' : stderr }).toEqual({ status: 0, stderr: '' });
  };
  const names = ['client', 'protocol', 'ucan'];
  const workspaces = names.map((name) => `--workspace=@sibyl/${name}`);
  npm('.', 'pack', '--loglevel=error', `--pack-destination=${folder}`, ...workspaces);
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
  const packed = globSync('*.tgz', { cwd: folder }).map((file) => `./${file}`);
  npm(folder, 'install', '--prefer-offline', '--no-audit', '--no-fund', ...packed);
  const installed = join(folder, 'node_modules');
  expect(readdirSync(join(installed, '@sibyl')).sort()).toEqual(names);
  expect(readdirSync(installed)).not.toContain('prom-client');

  const warnings: string[] = [];
  writeFileSync(join(folder, 'page.js'), "export * from '@sibyl/client';");
  const page = await rolldown({
    input: resolve(folder, 'page.js'),
    platform: 'browser',
    onLog: (_, { message }) => warnings.push(message),
  });
  const { output } = await page.generate({ format: 'esm' });
  const modules = output.flatMap((part) => (part.type === 'chunk' ? part.moduleIds : []));
  expect(modules.some((id) => id.includes('/@sibyl/ucan/'))).toBe(true);
  expect(warnings).toEqual([]);
});
