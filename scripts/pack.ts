// Packs every public package into the given folder, after a build if sources have changed.
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync } from 'node:fs';
import { ensureBuilt } from './build.ts';

const [, , folder = 'test-output/packages'] = process.argv;

ensureBuilt();

const workspaces = globSync('{packages,plugins}/*/package.json')
  .map((path) => JSON.parse(readFileSync(path, 'utf8')))
  .filter((manifest) => !manifest.private)
  .map(({ name }) => `--workspace=${name}`);

mkdirSync(folder, { recursive: true });
const args = ['pack', '--loglevel=error', `--pack-destination=${folder}`, ...workspaces];
process.exitCode = spawnSync('npm', args, { stdio: 'inherit' }).status ?? 1;
