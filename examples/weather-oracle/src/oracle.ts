import { createOracleApp, type OracleApp, type OracleAppOptions } from '@sibyl/host';
import { weather } from './weather-plugin.js';

/** An oracle that knows about the weather, beside all that comes with the host. */
export const createWeatherOracle = (options: OracleAppOptions = {}): Promise<OracleApp> =>
  createOracleApp({
    features: { slack: false },
    manifestOverrides: { memory: { title: 'What I know of you' } },
    ...options,
    plugins: [weather],
  });
