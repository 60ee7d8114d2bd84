import { spawnSync } from 'node:child_process';
import { utimesSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ensureBuilt } from './build.ts';

it('scripts/build.ts --if-changed, which npm start runs, shows its progress and skips what is built', {
  timeout: 600_000,
}, () => {
  ensureBuilt();
  const build = () =>
    spawnSync(process.execPath, ['scripts/build.ts', '--if-changed'], { encoding: 'utf8' });
  expect(build()).toMatchObject({ status: 0, stdout: '' });
  const now = new Date();
  utimesSync('packages/cli/src/index.ts', now, now);
  const { status, stdout, stderr } = build();
  expect([status, stderr]).toEqual([0, '']);
  const expected = [
    '[1/3] Compiling the packages',
    '[2/3] Building the chat page: nothing has changed',
    '[3/3] Bundling the host: nothing has changed',
  ];
  const steps = stdout.split('\n').filter((line) => line.startsWith('['));
  expect(steps).toEqual(expected);
  expect(stdout).toMatch(/Built in \d+ s/);
});
