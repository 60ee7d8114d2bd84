// Builds if sources have changed, then runs the host in this process and the demo gateway in another.
// With --no-gateway or GATEWAY_URL, no gateway starts.
import { buildIfChanged, MAIN } from './build.ts';

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

const failure = await buildIfChanged();
if (failure) process.exitCode = failure;
else await start();
