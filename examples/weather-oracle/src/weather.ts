import { definePlugin, defineRoute, defineTool, LruMap } from '@sibyl/plugin-kit';
import { z } from 'zod';

const CACHE_MS = 10 * 60_000;

interface CachedWeather {
  readonly result: unknown;
  readonly until: number;
}

const WeatherConfig = z.object({
  WEATHER_URL: z.url().prefault('https://wttr.in').describe('Weather service'),
  WEATHER_UNITS: z
    .enum(['metric', 'imperial'], { error: 'must be metric or imperial' })
    .prefault('metric')
    .describe('Units of temperatures'),
});

/** The part of the service's reply that is used. */
const Reply = z.object({
  current_condition: z.tuple([
    z.object({
      temp_C: z.string(),
      temp_F: z.string(),
      weatherDesc: z.tuple([z.object({ value: z.string() })]),
    }),
  ]),
});

/** Reports the current weather anywhere. */
export const weather = definePlugin({
  name: 'weather',
  version: '1.0.0',
  manifest: {
    title: 'Weather',
    summary: 'Reports the current weather at a place.',
    whenToUse: ['the user asks about the weather', 'a plan depends on the weather'],
    category: 'knowledge',
    visibility: 'always',
  },
  configSchema: WeatherConfig,
  setup: () => new LruMap<string, CachedWeather>({ maxBytes: 1024 ** 2, measure: () => 1024 }),
  getTools: ({ config, fetch }) => [
    defineTool({
      name: 'get_weather',
      description: 'Returns the current weather at a place. Use it for every question about it.',
      inputSchema: z.object({ place: z.string().trim().min(1).max(100) }),
      // It uses nothing that is stored for the user, so every access key may use it.
      reach: 'session',
      run: async ({ place }, { signal }) => {
        const url = new URL(`/${encodeURIComponent(place)}?format=j1`, config.WEATHER_URL);
        const response = await fetch(url, { signal });
        if (!response.ok) throw new Error(`There is no weather for ${place}: ${response.status}`);
        const [now] = Reply.parse(await response.json()).current_condition;
        const isMetric = config.WEATHER_UNITS === 'metric';
        const temperature = isMetric ? `${now.temp_C} °C` : `${now.temp_F} °F`;
        return { place, sky: now.weatherDesc[0].value, temperature };
      },
    }),
  ],
  getMiddlewares: ({ services: cache }) => [
    {
      name: 'weather-cache',
      // Without the cache, the service is called again.
      onFailure: 'skip',
      reach: 'session',
      wrapTool: async (call, next) => {
        if (call.name !== 'get_weather') return next(call);
        const key = String(call.input.place).toLowerCase();
        const cached = cache.get(key);
        if (cached && performance.now() < cached.until) return cached.result;
        const result = await next(call);
        cache.set(key, { result, until: performance.now() + CACHE_MS });
        return result;
      },
    },
  ],
  routes: ({ config }) => [
    defineRoute({
      method: 'GET',
      path: '/weather/source',
      auth: 'public',
      summary: 'Where the weather comes from',
      reply: z.object({ service: z.string(), units: z.string() }).meta({ id: 'WeatherSource' }),
      handler: () => ({ service: config.WEATHER_URL, units: config.WEATHER_UNITS }),
    }),
  ],
});
