import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { build, type Rolldown } from 'vite';
import { expect, it } from 'vitest';

it('bundles for a browser and runs with nothing but the language', async () => {
  const [bundle] = (await build({
    logLevel: 'silent',
    configFile: false,
    resolve: { conditions: ['sibyl-source'] },
    build: {
      write: false,
      lib: {
        entry: fileURLToPath(new URL('../src/index.ts', import.meta.url)),
        formats: ['iife'],
        name: 'protocol',
      },
    },
  })) as Rolldown.RolldownOutput[];
  const page = createContext({});
  runInContext(`${bundle?.output[0].code}; globalThis.protocol = protocol`, page);
  const parsed = runInContext('protocol.SendMessage.parse({ message: "hi" }).stream', page);
  expect(parsed).toBe(false);
});
