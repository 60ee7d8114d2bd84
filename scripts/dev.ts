// Rebuilds on every change and restarts the host.
import { spawn, spawnSync } from 'node:child_process';
import { TSC } from './build.ts';

spawnSync(process.execPath, [TSC, '-b'], { stdio: 'inherit' });
const children = [
  spawn(process.execPath, [TSC, '-b', '--watch', '--preserveWatchOutput'], { stdio: 'inherit' }),
  spawn(process.execPath, ['--watch', 'packages/host/dist/main.js'], { stdio: 'inherit' }),
];
const stop = () => {
  for (const child of children) child.kill();
};
process.once('SIGINT', stop).once('SIGTERM', stop);
