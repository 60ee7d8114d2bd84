import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, inject } from 'vitest';

const findSource = (name: string) =>
  fileURLToPath(new URL(`../../src/${name}.ts`, import.meta.url));

const HTML = `<!doctype html><link rel="icon" href="data:,">
<script type="module">
import * as sibyl from '/client.js';
import * as identities from '/identities.js';
Object.assign(globalThis, { sibyl, identities });
</script>`;

declare global {
  /** The client, inside the page. */
  var sibyl: typeof import('@sibyl/client');
  var identities: typeof import('@sibyl/client/identities');
}

/** An empty page with the client, served from a separate origin. */
export interface WebPage {
  readonly origin: string;
  /** Opens a tab in a new profile, or in the given one. */
  open(context?: BrowserContext): Promise<Page>;
  /** Closes all tabs, whose open connections would delay the server's shutdown. */
  leave(): Promise<void>;
}

export function useWebPage(): WebPage {
  const state: { origin: string; browser?: Browser } = { origin: '' };
  const server = createServer();
  beforeAll(async () => {
    const files = await bundle();
    server.on('request', (request, response) => {
      const code = files.get(request.url ?? '');
      const type = code === undefined ? 'text/html' : 'text/javascript';
      response.writeHead(200, { 'content-type': type }).end(code ?? HTML);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    state.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    state.browser = await chromium.launch({
      executablePath: inject('chromium'),
      args: ['--headless', '--no-sandbox', '--disable-gpu'],
    });
  });
  afterAll(async () => {
    await state.browser?.close();
    server.closeAllConnections();
    server.close();
  });
  return {
    get origin() {
      return state.origin;
    },
    async open(context) {
      const page = await (context ?? (await state.browser?.newContext()))?.newPage();
      if (!page) throw new Error('no browser');
      await page.goto(state.origin);
      return page;
    },
    async leave() {
      await Promise.all(state.browser?.contexts().map((context) => context.close()) ?? []);
    },
  };
}

/** Bundles the client: path → code. */
async function bundle(): Promise<Map<string, string>> {
  const bundled = await rolldown({
    input: { client: findSource('index'), identities: findSource('identities') },
    platform: 'browser',
    resolve: { conditionNames: ['sibyl-source', 'import', 'default'] },
  });
  const { output } = await bundled.generate({ format: 'esm', entryFileNames: '[name].js' });
  return new Map(
    output.flatMap((part) => (part.type === 'chunk' ? [[`/${part.fileName}`, part.code]] : [])),
  );
}
