import { createOracleApp } from '@sibyl/host';
import { weather } from './weather.js';

const app = await createOracleApp({ plugins: [weather], features: { slack: false } });
await app.listen();
process.once('SIGTERM', () => app.close()).once('SIGINT', () => app.close());
