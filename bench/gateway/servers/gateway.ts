// The gateway as it is served, in a process of its own; its first argument is the node.
import { createGateway, loadConfig } from '@sibyl/gateway';

const config = loadConfig({
  ...process.env,
  GATEWAY_UPSTREAMS: process.argv[2],
  GATEWAY_PORT: '0',
  LOG_LEVEL: 'warn',
});
const gateway = await createGateway({ config });
process.send?.({ url: await gateway.listen() });
// Whoever started it has gone.
process.once('disconnect', () => process.exit());
