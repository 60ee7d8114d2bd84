import type { OraclePlugin, PluginDatabase } from '@sibyl/plugin-kit';
import { beforeAll } from 'vitest';
import { type Engine, useStore } from './test-database.js';

/** A plugin's tables open during the surrounding `describe`; `another` opens them as a second process would. */
export interface TestTables {
  readonly database: PluginDatabase;
  another(): Promise<PluginDatabase>;
}

export function usePluginTables(
  engine: Engine,
  { name, tables }: Pick<OraclePlugin, 'name' | 'tables'>,
): TestTables {
  const test = useStore(engine);
  const request = { plugin: name, tables, plugins: [name] };
  const opened: PluginDatabase[] = [];
  beforeAll(async () => void opened.push(await test.store.pluginTables.open(request)));
  return {
    get database() {
      return opened[0] as PluginDatabase;
    },
    another: async () => (await test.another()).pluginTables.open(request),
  };
}
