import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { expect, test } from 'vitest';

interface Chunk {
  readonly imports: readonly string[];
  readonly dynamicImports: readonly string[];
}

test('@sibyl/ucan imports two packages of this project and nothing else: ucanto only judges beside it in tests', async () => {
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
  const imports = chunk?.imports.filter((id) => !isBuiltin(id)) ?? [];
  expect(imports.toSorted()).toEqual(['@sibyl/protocol', '@sibyl/server-kit']);
  expect(chunk?.dynamicImports).toEqual([]);
});
