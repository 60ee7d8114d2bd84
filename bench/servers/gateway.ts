// The gateway as operators run it, in its own process; the argument is the URL of the node.
import { createGateway, loadConfig } from '@sibyl/gateway';

const config = loadConfig({
  ...process.env,
  GATEWAY_UPSTREAMS: process.argv[2],
  GATEWAY_PORT: '0',
  LOG_LEVEL: 'warn',
});
const gateway = await createGateway({ config });
process.send?.({ url: await gateway.listen() });
// The benchmark has exited.
process.once('disconnect', () => process.exit());
