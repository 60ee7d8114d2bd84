import { readFileSync } from 'node:fs';
import { defineConfig, type Plugin } from 'vitest/config';

const plan = JSON.parse(readFileSync(process.env.MUTATION_PLAN ?? '', 'utf8'));

const removeQuery = (id: string) => id.replace(/\?.*/, '');

/** Serves the code with mutants. What a module imported with `?fresh=…` imports from this project is loaded again, too. */
const mutants: Plugin = {
  name: 'mutants',
  enforce: 'pre',
  async resolveId(source, importer = '') {
    const [fresh] = /\?fresh=.*/.exec(importer) ?? [];
    if (!fresh || !source.startsWith('.')) return undefined;
    const found = await this.resolve(source, removeQuery(importer), { skipSelf: true });
    return found && `${found.id}${fresh}`;
  },
  load: (id) => plan.sources[removeQuery(id)],
};

export default defineConfig({
  plugins: [mutants],
  ssr: { resolve: { conditions: ['sibyl-source'] } },
  test: {
    include: ['tools/mutation/mutants.ts'],
    env: { SIBYL_TEST_ENGINES: 'sqlite', SIBYL_TEST_TWINS: 'true' },
    pool: 'threads',
    maxWorkers: 1,
    isolate: false,
    // It does not know that the plan decides what a module contains.
    fsModuleCache: false,
    testTimeout: 15_000,
    hookTimeout: 30_000,
    expect: { poll: { timeout: 10_000 } },
  },
});
