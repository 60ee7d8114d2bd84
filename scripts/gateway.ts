// Compiles the gateway and runs it in this process; without GATEWAY_UPSTREAMS, with the demo chain.
import { spawnSync } from 'node:child_process';
import { TSC } from './build.ts';

const MAIN = 'packages/gateway/dist/main.js';
const CHECK_PARENT_MS = 500;

const parent = process.ppid;
// The shell that npm starts exits on a signal without forwarding it.
const watch = setInterval(() => {
  if (process.ppid === parent) return;
  clearInterval(watch);
  process.kill(process.pid, 'SIGTERM');
}, CHECK_PARENT_MS).unref();

const projects = ['packages/gateway', 'packages/demo-chain'];
const { status } = spawnSync(process.execPath, [TSC, '-b', ...projects], { stdio: 'inherit' });
if (status === 0) {
  await import('./demo-chain.ts');
  await import(`../${MAIN}`);
} else process.exitCode = status ?? 1;
