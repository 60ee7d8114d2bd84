import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Read workspace packages from src, so tests need no build. The condition has a name of its own,
  // since other packages publish a `source` too; `import` or `module` beside it would break
  // CommonJS dependencies of Express.
  ssr: { resolve: { conditions: ['sibyl-source'] } },
  test: {
    include: [
      '{packages,plugins,examples,compat}/*/{src,test}/**/*.test.{ts,tsx}',
      'scripts/**/*.test.ts',
    ],
    // Tests wait for conditions; these only bound how long a busy machine may take to meet one.
    testTimeout: 120_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 60_000 } },
    // Unless told, one core is left idle, which is half of a small machine.
    maxWorkers: '100%',
    globalSetup: [
      'packages/host/test/support/postgres.ts',
      'packages/web/test/support/chromium.ts',
    ],
  },
});
