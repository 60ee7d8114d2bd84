import { createLlms } from '../agent/llms.js';
import type { Meter } from '../agent/meter.js';
import type { Models } from '../agent/model/models.js';
import type { Config } from '../config/config.js';
import { type LoadedPlugins, loadPlugins } from '../plugin-loader/load-plugins.js';
import type { HostServices } from '../plugin-loader/plugin-context.js';
import type { SelectedPlugin } from '../plugin-loader/select-plugins.js';
import { createPluginFetch } from './create-plugin-fetch.js';

interface PluginNeeds extends Omit<HostServices, 'fetch' | 'llm'> {
  readonly config: Config;
  readonly models: Models;
  /** Of what plugins ask models outside of turns. */
  readonly meter: Meter;
}

/** Sets up the plugins with what the host lends them. */
export async function wirePlugins(
  selected: readonly SelectedPlugin[],
  { config, models, meter, ...services }: PluginNeeds,
): Promise<LoadedPlugins> {
  const closing = new AbortController();
  const loaded = await loadPlugins(selected, {
    ...services,
    fetch: createPluginFetch(config),
    llm: createLlms({ modelFor: models.get, meter, signal: closing.signal }),
  });
  const close = async () => {
    closing.abort(new Error('The host is closing'));
    await loaded.close();
  };
  return { ...loaded, close };
}
