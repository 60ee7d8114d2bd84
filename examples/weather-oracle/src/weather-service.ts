import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { WeatherConfig } from './config.js';

export interface Weather {
  readonly place: string;
  readonly sky: string;
  readonly temperature: string;
}

/** What the service answers, as far as it is used. */
const Answer = z.object({
  current_condition: z.tuple([
    z.object({
      temp_C: z.string(),
      temp_F: z.string(),
      weatherDesc: z.tuple([z.object({ value: z.string() })]),
    }),
  ]),
});

/** Asks a weather service. */
export class WeatherService {
  constructor(private readonly context: Pick<PluginContext<WeatherConfig>, 'config' | 'fetch'>) {}

  async now(place: string, signal: AbortSignal): Promise<Weather> {
    const { config, fetch } = this.context;
    const url = new URL(`/${encodeURIComponent(place)}?format=j1`, config.WEATHER_URL);
    const response = await fetch(url, { signal });
    if (!response.ok) throw new Error(`There is no weather for ${place}: ${response.status}`);
    const [now] = Answer.parse(await response.json()).current_condition;
    const temperature = config.WEATHER_UNITS === 'metric' ? `${now.temp_C} °C` : `${now.temp_F} °F`;
    return { place, sky: now.weatherDesc[0].value, temperature };
  }
}
