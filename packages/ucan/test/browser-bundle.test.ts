import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { expect, test } from 'vitest';

test('the browser minter is small and needs nothing of Node', async () => {
  const entry = fileURLToPath(new URL('../src/browser/index.ts', import.meta.url));
  const imported = new Set<string>();
  const result = await build({
    configFile: false,
    logLevel: 'silent',
    plugins: [{ name: 'imports', resolveId: (id) => void imported.add(id) }],
    // Not Vite's library mode, which leaves whitespace in.
    build: { write: false, rolldownOptions: { input: entry, preserveEntrySignatures: 'strict' } },
  });
  const [bundle] = [result].flat() as { output: { code: string }[] }[];
  const code = bundle?.output.map((chunk) => chunk.code).join('') ?? '';
  expect([...imported].filter(isBuiltin)).toEqual([]);
  expect([...imported].filter((id) => !/^[./]/.test(id))).toEqual([]);
  expect(code).not.toMatch(/\bBuffer\b|node:|\bimport\b/);
  expect(Buffer.byteLength(code)).toBeGreaterThan(1000);
  expect(Buffer.byteLength(code)).toBeLessThan(5500);
});
