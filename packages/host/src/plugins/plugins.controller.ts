import { Controller, Get, Inject } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { type PluginInfo, PluginList } from '@sibyl/protocol';
import { Public } from '../auth/public-route.js';

/** The plugins are plain objects, which Nest cannot ask for by class. */
export const PLUGINS = Symbol('plugins');

@Public()
@Controller('plugins')
export class PluginsController {
  constructor(@Inject(PLUGINS) private readonly plugins: readonly LoadedPlugin[]) {}

  @Get()
  @Describe({ summary: 'What this oracle can do, by plugin', reply: PluginList })
  list(): PluginList {
    return { plugins: this.plugins.flatMap(infoOf) };
  }
}

/** Nobody is told of a silent plugin. */
function infoOf({ name, manifest }: LoadedPlugin): PluginInfo[] {
  const { title, summary, category, visibility, stability, examples = [], tags = [] } = manifest;
  if (visibility === 'silent') return [];
  return [{ name, title, summary, category, visibility, stability, examples, tags }];
}
