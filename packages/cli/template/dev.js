// Compiles on every change of src, and restarts the oracle with the result.
import { spawn, spawnSync } from 'node:child_process';

const TSC = 'node_modules/typescript/bin/tsc';
const compile = [TSC, '-p', 'tsconfig.build.json'];
const run = (...args) => spawn(process.execPath, args, { stdio: 'inherit' });

spawnSync(process.execPath, compile, { stdio: 'inherit' });
const children = [
  run(...compile, '--watch', '--preserveWatchOutput'),
  run('--watch', '--env-file-if-exists=.env', 'dist/main.js'),
];
const stop = () => {
  for (const child of children) child.kill();
};
process.once('SIGINT', stop).once('SIGTERM', stop);
