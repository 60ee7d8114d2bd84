import { createWeatherOracle } from './oracle.js';

const app = await createWeatherOracle();
await app.listen();
process.once('SIGTERM', () => app.close()).once('SIGINT', () => app.close());
