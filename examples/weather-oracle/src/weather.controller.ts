import { Controller, Get, Inject } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { WeatherConfig } from './config.js';

export const CONFIG = Symbol('config');

const WeatherSource = z
  .object({ service: z.string(), units: z.string() })
  .meta({ id: 'WeatherSource' });
type WeatherSource = z.infer<typeof WeatherSource>;

@Controller('weather')
export class WeatherController {
  constructor(@Inject(CONFIG) private readonly config: WeatherConfig) {}

  @Get('source')
  @Describe({ summary: 'Where the weather comes from', reply: WeatherSource })
  source(): WeatherSource {
    return { service: this.config.WEATHER_URL, units: this.config.WEATHER_UNITS };
  }
}
