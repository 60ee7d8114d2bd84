import type { OraclePlugin, PluginDatabase } from '@sibyl/plugin-kit';
import { createModels } from '../agent/model/models.js';
import { loadOracleIdentity } from '../auth/oracle-identity.js';
import { type Config, loadConfig } from '../config/config.js';
import { openStore } from '../store/open-store.js';
import type { Store } from '../store/store.js';

const MODEL_PATIENCE_MS = 30_000;

/** What keeps the store from working, if anything. */
export async function checkStore(config: Config): Promise<string | undefined> {
  try {
    await withStore(config, (store) => store.ping());
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** What keeps the main model from answering, if anything; asks it for one word. */
export async function checkModel(config: Config): Promise<string | undefined> {
  const signal = AbortSignal.timeout(MODEL_PATIENCE_MS);
  try {
    const parts = createModels(config.models)
      .get('main')
      .stream({
        system: 'Answer with one word.',
        messages: [{ role: 'user', content: 'Say OK' }],
        tools: [],
        signal,
      });
    for await (const part of parts) if (part.type === 'text') return undefined;
    return 'it ended without an answer';
  } catch (error) {
    return signal.aborted ? 'it does not answer in time' : messageOf(error);
  }
}

/** Does something to what a plugin keeps, in the store that the environment names. */
export async function inPluginTables<T>(
  { name, migrations = {} }: OraclePlugin,
  work: (tables: PluginDatabase) => Promise<T>,
): Promise<T> {
  return withStore(loadConfig(), async (store) =>
    work(await store.pluginTables.open({ plugin: name, migrations, plugins: [name] })),
  );
}

async function withStore<T>(config: Config, work: (store: Store) => Promise<T>): Promise<T> {
  const { signer } = await loadOracleIdentity(config);
  const { databaseUrl, dataDir } = config;
  const store = await openStore({
    databaseUrl,
    dataDir,
    secretKey: signer.exportSeed(),
    onConnectionLost: () => undefined,
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
