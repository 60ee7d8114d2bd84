import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin } from '@sibyl/plugin-kit';
import { WeatherConfig } from './config.js';
import { recentWeather } from './recent-weather.js';
import { CONFIG, WeatherController } from './weather.controller.js';
import { WeatherService } from './weather-service.js';
import { weatherTool } from './weather-tool.js';

@Module({})
class WeatherModule {}

/** What the sky looks like, anywhere. */
export const weather = definePlugin({
  name: 'weather',
  version: '1.0.0',
  manifest: {
    title: 'Weather',
    summary: 'Tells the weather at a place right now.',
    whenToUse: ['the user asks about the weather', 'a plan depends on the weather'],
    whenNotToUse: ['the user asks about the climate, or about the weather of another day'],
    examples: ['Do I need an umbrella in Nairobi?'],
    category: 'knowledge',
    visibility: 'always',
  },
  configSchema: WeatherConfig,
  getTools: (context) => [weatherTool(new WeatherService(context))],
  getMiddlewares: () => [recentWeather()],
  getNestModules: ({ config }): DynamicModule[] => [
    {
      module: WeatherModule,
      controllers: [WeatherController],
      providers: [{ provide: CONFIG, useValue: config }],
    },
  ],
  getAuthExcludedRoutes: () => ['weather/source'],
});
