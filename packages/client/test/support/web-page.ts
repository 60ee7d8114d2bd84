import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, inject } from 'vitest';

const ENTRY = fileURLToPath(new URL('../../src/index.ts', import.meta.url));

const HTML = `<!doctype html><link rel="icon" href="data:,">
<script type="module">import * as sibyl from '/client.js'; globalThis.sibyl = sibyl;</script>`;

declare global {
  /** The client, inside the page. */
  var sibyl: typeof import('@sibyl/client');
}

/** A page with nothing on it but the client, from an origin of its own. */
export interface WebPage {
  readonly origin: string;
  /** A tab in a profile that knows nothing, or in that of another tab. */
  open(context?: BrowserContext): Promise<Page>;
  /** Closes every tab: what a browser keeps open would keep a host from closing. */
  leave(): Promise<void>;
}

export function useWebPage(): WebPage {
  const parts: { origin: string; browser?: Browser } = { origin: '' };
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
    parts.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    parts.browser = await chromium.launch({
      executablePath: inject('chromium'),
      args: ['--headless', '--no-sandbox', '--disable-gpu'],
    });
  });
  afterAll(async () => {
    await parts.browser?.close();
    server.closeAllConnections();
    server.close();
  });
  return {
    get origin() {
      return parts.origin;
    },
    async open(context) {
      const page = await (context ?? (await parts.browser?.newContext()))?.newPage();
      if (!page) throw new Error('no browser');
      await page.goto(parts.origin);
      return page;
    },
    async leave() {
      await Promise.all(parts.browser?.contexts().map((context) => context.close()) ?? []);
    },
  };
}

/** The client as a page loads it: path → code. */
async function bundle(): Promise<Map<string, string>> {
  const bundled = await rolldown({
    input: { client: ENTRY },
    platform: 'browser',
    resolve: { conditionNames: ['sibyl-source', 'import', 'default'] },
  });
  const { output } = await bundled.generate({ format: 'esm', entryFileNames: '[name].js' });
  return new Map(
    output.flatMap((part) => (part.type === 'chunk' ? [[`/${part.fileName}`, part.code]] : [])),
  );
}
