import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { expect, test } from 'vitest';

interface Chunk {
  readonly imports: readonly string[];
  readonly dynamicImports: readonly string[];
}

test('the package starts without ucanto, which is loaded for the first chain', async () => {
  const entry = fileURLToPath(new URL('./index.ts', import.meta.url));
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
  expect(chunk?.imports.filter((id) => !isBuiltin(id))).toEqual([]);
  expect(chunk?.dynamicImports).toEqual(['@ucanto/core', '@ucanto/validator']);
});
