// Loaded before the gateway, in its process: unless GATEWAY_UPSTREAMS is set, starts the demo chain and points it there.
import { startDemoChain } from '@sibyl/demo-chain';

if (!process.env.GATEWAY_UPSTREAMS?.trim()) {
  const { url, unref } = await startDemoChain();
  // The process ends with the gateway.
  unref();
  process.env.GATEWAY_UPSTREAMS = url;
  const msg = 'GATEWAY_UPSTREAMS is unset: serving the demo chain';
  console.log(JSON.stringify({ level: 'info', time: new Date().toISOString(), url, msg }));
}
