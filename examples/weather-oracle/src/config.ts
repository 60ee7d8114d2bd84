import { z } from 'zod';

/** The variables of the plugin. */
export const WeatherConfig = z.object({
  WEATHER_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .prefault('https://wttr.in')
    .describe('Weather service that is asked'),
  WEATHER_UNITS: z
    .enum(['metric', 'imperial'], { error: 'must be metric or imperial' })
    .prefault('metric')
    .describe('What temperatures are told in'),
});
export type WeatherConfig = z.output<typeof WeatherConfig>;
