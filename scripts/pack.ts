// Packs every public package into the given folder, after a build if sources have changed.
import { spawnSync } from 'node:child_process';
import { copyFileSync, globSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ensureBuilt } from './build.ts';

const [, , folder = 'test-output/packages'] = process.argv;

ensureBuilt();

const published = globSync('{packages,plugins}/*/package.json')
  .map((path) => ({ path, manifest: JSON.parse(readFileSync(path, 'utf8')) }))
  .filter(({ manifest }) => !manifest.private);
// npm takes it only from the folder of the package.
for (const { path } of published) copyFileSync('LICENSE', join(dirname(path), 'LICENSE'));
const workspaces = published.map(({ manifest }) => `--workspace=${manifest.name}`);

mkdirSync(folder, { recursive: true });
const args = ['pack', '--loglevel=error', `--pack-destination=${folder}`, ...workspaces];
const { status, error } = spawnSync('npm', args, { stdio: 'inherit' });
if (error) console.error(`npm did not start: ${error.message}`);
process.exitCode = status ?? 1;
