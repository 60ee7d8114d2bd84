import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { expect, test } from 'vitest';

interface Chunk {
  readonly imports: readonly string[];
  readonly dynamicImports: readonly string[];
}

test('@sibyl/ucan imports @sibyl/server-kit and nothing else: ucanto only judges beside it in tests', async () => {
  const entry = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const result = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      ssr: entry,
      rolldownOptions: {
        external: (id) => !/^[./]/.test(id),
        output: { codeSplitting: false },
        treeshake: false,
      },
    },
  });
  const [bundle] = [result].flat() as unknown as { output: Chunk[] }[];
  const [chunk] = bundle?.output ?? [];
  expect(chunk?.imports.filter((id) => !isBuiltin(id))).toEqual(['@sibyl/server-kit']);
  expect(chunk?.dynamicImports).toEqual([]);
});
