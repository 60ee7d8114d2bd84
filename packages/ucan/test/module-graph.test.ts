import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { expect, test } from 'vitest';

interface Chunk {
  readonly imports: readonly string[];
  readonly dynamicImports: readonly string[];
}

test('@sibyl/ucan imports @sibyl/protocol and nothing else: ucanto only judges beside it in tests', async () => {
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
  expect(new Set(imports.map((id) => id.split('/').slice(0, 2).join('/')))).toEqual(
    new Set(['@sibyl/protocol']),
  );
  expect(chunk?.dynamicImports).toEqual([]);
});
