// Builds if sources have changed, then runs the host in this process and the demo gateway in another.
// With --no-gateway or GATEWAY_URL, no gateway starts.
import { spawnSync } from 'node:child_process';
import { MAIN } from './build.ts';

/** Without GATEWAY_UPSTREAMS the gateway serves the demo chain. */
const DEMO_CHAIN = new URL('./demo-chain.ts', import.meta.url).href;

async function start(): Promise<void> {
  const { loadDotEnv, startGateway } = await import('@sibyl/cli');
  loadDotEnv();
  const isGatewayWanted = !process.argv.includes('--no-gateway') && !process.env.GATEWAY_URL;
  const gateway = isGatewayWanted ? await startGateway({ preload: DEMO_CHAIN }) : undefined;
  await import(`../${MAIN}`);
  await gateway?.stop();
}

// In a separate process: this one would keep the memory of the compiler and the bundler.
const { status } = spawnSync(process.execPath, ['scripts/build.ts', '--if-changed'], {
  stdio: 'inherit',
});
if (status === 0) await start();
else process.exitCode = status ?? 1;
