// The host as it is served, in a process of its own, which reports its memory when asked.
import { createOracleApp } from '@sibyl/host';

const app = await createOracleApp({});
process.on('message', () => process.send?.({ memory: process.memoryUsage() }));
process.send?.({ url: await app.listen(), did: app.did });
