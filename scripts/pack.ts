// Packs the build output of every public package into the given folder.
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync } from 'node:fs';

const [, , folder = 'test-output/packages'] = process.argv;

const workspaces = globSync('{packages,plugins}/*/package.json')
  .map((path) => JSON.parse(readFileSync(path, 'utf8')))
  .filter((manifest) => !manifest.private)
  .map(({ name }) => `--workspace=${name}`);

mkdirSync(folder, { recursive: true });
const args = ['pack', '--loglevel=error', `--pack-destination=${folder}`, ...workspaces];
process.exitCode = spawnSync('npm', args, { stdio: 'inherit' }).status ?? 1;
