// Rebuilds on every change and restarts the host.
import { spawn, spawnSync } from 'node:child_process';

spawnSync('tsc', ['-b'], { stdio: 'inherit' });
const children = [
  spawn('tsc', ['-b', '--watch', '--preserveWatchOutput'], { stdio: 'inherit' }),
  spawn('node', ['--watch', 'packages/host/dist/main.js'], { stdio: 'inherit' }),
];
const stop = () => {
  for (const child of children) child.kill();
};
process.once('SIGINT', stop).once('SIGTERM', stop);
