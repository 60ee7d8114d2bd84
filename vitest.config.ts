import { availableParallelism } from 'node:os';
import { matchesGlob, relative } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Tests that define globals, count timers or measure the memory or the time of the process, so each file has a separate one. */
export const ISOLATED = [
  'packages/client/test/*.test.tsx',
  'compat/*/test/*.test.{ts,tsx}',
  'packages/host/test/{limits,slow-reader,long-histories,socket-limits,declared-schemas}.test.ts',
  'packages/gateway/test/{robustness,memory}.test.ts',
  '**/{filled-caches,reply-cache,lru-map,file-memory,fuzz,verifier-cost}.test.ts',
  'packages/host/src/**/{access-watch,flush-loop,hooks,middlewares-chain,run-agent-tools}.test.ts',
  'packages/host/src/**/{run-feeds,run-reader,turn-access}.test.ts',
];

/**
 * Tests that start processes or browsers, install packages, kill hosts or wait for timeouts.
 * They start first, in this order, so that the longest ones do not run alone at the end.
 */
export const SLOW = [
  'packages/host/test/{cluster-*,durable-turns*}.test.ts',
  'packages/cli/test/*.test.ts',
  'packages/web/test/*.test.ts',
  'packages/client/test/*.test.ts',
  '**/{crash,*-crash,processes,process,process-signals}.test.ts',
  'packages/host/**/{postgres,store-away,reply-status,turn-length}.test.ts',
  'packages/host/**/{open-database,provider-endings}.test.ts',
  'packages/host/**/{host-bus,liveness,directory-lock,pooler,socket-presence}.test.ts',
  'packages/host/test/{attacks-*,hostile-files,slack-load,unhandled-errors}.test.ts',
  'packages/host/test/{socket-events,sessions}.test.ts',
  'packages/gateway/test/{outage,pool,watch}.test.ts',
  'scripts/{build,snippets,shell-examples,start,file-lock,soak,deployment,proxies}.test.ts',
  'packages/ucan/test/hostile-tokens.test.ts',
];

/** Tests that take more than ten seconds, or need programs that few machines have: `npm run test:all`. */
export const LONG = [
  'packages/host/test/{cluster-*,durable-turns*,full-disk}.test.ts',
  'packages/host/test/fairness.test.ts',
  'packages/host/src/bus/pooler.test.ts',
  'packages/host/test/{database-wait,overload,schedule-load}.test.ts',
  'packages/cli/test/{install,user-commands}.test.ts',
  'packages/web/test/storage.test.ts',
  'packages/client/test/packed.test.ts',
  'scripts/{deployment,promtool,proxies,start-memory}.test.ts',
];

/** Files of one project follow each other: a worker that shares its modules ends where another project begins. */
class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project: { name } }: TestSpecification) => {
      if (name !== 'slow') return SLOW.length + (name === 'fast' ? 1 : 0);
      const path = relative(this.ctx.config.root, moduleId);
      return SLOW.findIndex((pattern) => matchesGlob(path, pattern));
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
const limits = {
  testTimeout: 120_000,
  hookTimeout: 240_000,
  expect: { poll: { timeout: 60_000 } },
};

/** Files share workers and loaded modules, which saves most of the time of small files. */
const shared = { isolate: false, setupFiles: ['scripts/vitest-setup.ts'] };

export default defineConfig({
  test: {
    // More than cores, since slow tests often wait.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: SlowFirst },
    // PostgreSQL and Chromium: once for all projects.
    globalSetup: [
      'packages/host/test/support/postgres.ts',
      'packages/web/test/support/chromium.ts',
    ],
    projects: [
      {
        ...project,
        test: {
          name: 'fast',
          ...limits,
          ...shared,
          // Every row has a twin of another owner, so that each test also shows that users are kept apart.
          env: { SIBYL_TEST_TWINS: 'true' },
          include: [
            '{packages,plugins,examples,compat}/*/{src,test}/**/*.test.{ts,tsx}',
            'scripts/**/*.test.ts',
          ],
          exclude: [...configDefaults.exclude, ...SLOW, ...ISOLATED, ...LONG],
        },
      },
      {
        ...project,
        test: {
          name: 'slow',
          ...limits,
          ...shared,
          include: SLOW,
          exclude: [...configDefaults.exclude, ...ISOLATED, ...LONG],
        },
      },
      {
        ...project,
        test: {
          name: 'isolated',
          ...limits,
          include: ISOLATED,
          exclude: [...configDefaults.exclude, ...LONG],
        },
      },
      {
        ...project,
        test: { name: 'long', ...limits, include: LONG },
      },
    ],
  },
});
