import { defineTool, type Tool } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { WeatherService } from './weather-service.js';

/** Lets the agent look at the sky. */
export const weatherTool = (weather: WeatherService): Tool =>
  defineTool({
    name: 'get_weather',
    description:
      'Tells the weather at a place right now. Use it whenever an answer depends on the weather; never guess.',
    inputSchema: z.object({
      place: z.string().trim().min(1).max(100).describe('A town or region'),
    }),
    timeoutMs: 10_000,
    run: ({ place }, { signal }) => weather.now(place, signal),
  });
