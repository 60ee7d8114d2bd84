import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Read workspace packages from src, so tests need no build. Only this one condition:
  // adding `import` or `module` here breaks CommonJS dependencies of Express.
  ssr: { resolve: { conditions: ['source'] } },
  test: {
    include: ['{packages,plugins}/*/{src,test}/**/*.test.ts', 'scripts/**/*.test.ts'],
    globalSetup: ['packages/host/test/support/postgres.ts'],
  },
});
