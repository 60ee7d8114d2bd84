import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { rolldown } from 'rolldown';
import { describe, expect, it } from 'vitest';

const MAX_BYTES = 20_500;

interface Bundle {
  /** Bytes of the initial chunks, minified and compressed. */
  readonly size: number;
  /** Modules that are loaded on demand. */
  readonly onDemand: readonly string[];
  readonly modules: readonly string[];
}

/** Bundles a page with this code for a browser. */
async function bundle(code: string): Promise<Bundle> {
  const bundled = await rolldown({
    input: 'page',
    platform: 'browser',
    external: ['react'],
    resolve: { conditionNames: ['sibyl-source', 'import', 'default'] },
    plugins: [
      {
        name: 'page',
        resolveId: (id) =>
          id === 'page' ? id : id.startsWith('@sibyl/client') ? findSource(id) : null,
        load: (id) => (id === 'page' ? code : null),
      },
    ],
  });
  const { output } = await bundled.generate({ format: 'esm', minify: true });
  const chunks = output.filter((part) => part.type === 'chunk');
  const entry = chunks.find(({ isEntry }) => isEntry);
  const initial = chunks.filter((each) => each === entry || entry?.imports.includes(each.fileName));
  return {
    size: gzipSync(initial.map((chunk) => chunk.code).join('')).length,
    onDemand: chunks
      .filter((each) => !initial.includes(each))
      .flatMap(({ moduleIds }) => moduleIds),
    modules: initial.flatMap(({ moduleIds }) => moduleIds),
  };
}

const findSource = (id: string) =>
  fileURLToPath(new URL(`.${id.slice('@sibyl/client'.length)}/index.ts`, import.meta.url));

describe('bundle size in a browser', () => {
  it(`@sibyl/client is under ${MAX_BYTES} bytes and loads the socket on demand`, async () => {
    const { size, onDemand, modules } = await bundle(`export * from '@sibyl/client'`);
    expect(size).toBeGreaterThan(5_000);
    expect(size).toBeLessThan(MAX_BYTES);
    expect(onDemand.some((id) => id.includes('/socket.io-client/'))).toBe(true);
    expect(modules.filter((id) => /node_modules/.test(id))).toEqual([]);
    expect(modules.filter(isBuiltin)).toEqual([]);
  });

  it('createOracleClient alone does not include the signer and chat code', async () => {
    const all = await bundle(`export * from '@sibyl/client'`);
    const some = await bundle(`export { createOracleClient } from '@sibyl/client'`);
    expect(some.size).toBeLessThan(all.size * 0.8);
    expect(some.modules.filter((id) => /browser-signer|key-store|chat/.test(id))).toEqual([]);
  });

  it('@sibyl/client/react includes no dependencies', async () => {
    const { size, modules } = await bundle(`export * from '@sibyl/client/react'`);
    expect(size).toBeLessThan(MAX_BYTES);
    expect(modules.filter((id) => /node_modules/.test(id))).toEqual([]);
  });
});
