import { availableParallelism } from 'node:os';
import { matchesGlob, relative } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Tests that start processes or browsers, define globals, install packages, kill hosts, wait for timeouts or measure
 * memory or time.
 * They start first, in this order, so that the longest ones do not run alone at the end.
 */
export const SLOW = [
  'packages/host/test/{cluster-*,durable-turns*}.test.ts',
  'packages/cli/test/*.test.ts',
  'packages/web/test/*.test.ts',
  'packages/client/test/browser.test.ts',
  '**/{crash,*-crash,processes,process,process-signals}.test.ts',
  'packages/host/**/{postgres,store-away,full-disk,limits,reply-status,turn-length}.test.ts',
  'packages/host/**/{open-database,provider-endings}.test.ts',
  'packages/host/**/{host-bus,liveness,directory-lock,pooler,socket-presence,cluster-sockets}.test.ts',
  'packages/host/test/{attacks-*,hostile-files,slow-reader,slack-load,long-histories,unhandled-errors}.test.ts',
  'packages/host/test/{declared-schemas,socket-events,socket-limits}.test.ts',
  'packages/gateway/test/{robustness,memory,outage,pool,watch}.test.ts',
  'scripts/{build,snippets,shell-examples,start,file-lock,soak,deployment,proxies}.test.ts',
  '**/{filled-caches,reply-cache,lru-map,file-memory,fuzz,verifier-cost}.test.ts',
  'packages/host/test/sessions.test.ts',
  'packages/ucan/test/hostile-tokens.test.ts',
  '{packages/client,compat/*}/test/*.test.{ts,tsx}',
];

class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const path = relative(this.ctx.config.root, moduleId);
      const index = SLOW.findIndex((pattern) => matchesGlob(path, pattern));
      return index < 0 ? SLOW.length : index;
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

const project = {
  // Read workspace packages from src, so that tests need no build. The condition has its own name, since other
  // packages publish a `source` too; `import` or `module` beside it would break CommonJS dependencies of Express.
  ssr: { resolve: { conditions: ['sibyl-source'] } },
};

/** Tests wait for conditions; these only limit how long a busy machine may take to meet one. */
const timeouts = {
  testTimeout: 120_000,
  hookTimeout: 240_000,
  expect: { poll: { timeout: 60_000 } },
};

export default defineConfig({
  test: {
    // More than cores, since slow tests often wait.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: SlowFirst },
    // PostgreSQL and Chromium: once for both projects.
    globalSetup: [
      'packages/host/test/support/postgres.ts',
      'packages/web/test/support/chromium.ts',
    ],
    projects: [
      {
        ...project,
        test: {
          name: 'fast',
          ...timeouts,
          include: [
            '{packages,plugins,examples,compat}/*/{src,test}/**/*.test.{ts,tsx}',
            'scripts/**/*.test.ts',
          ],
          exclude: [...configDefaults.exclude, ...SLOW],
          // Files share workers and loaded modules, which saves most of the time of small files.
          isolate: false,
          setupFiles: ['scripts/vitest-setup.ts'],
        },
      },
      {
        ...project,
        test: {
          name: 'slow',
          ...timeouts,
          include: SLOW,
          // Once more on a shared machine, where a browser or a host may starve; a defect fails twice, and the report shows retries.
          retry: process.env.CI ? 1 : 0,
        },
      },
    ],
  },
});
