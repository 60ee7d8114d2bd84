import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { RequestContext } from './request-context.js';

/** The files of Swagger UI that the page needs; no others are served. */
const ASSETS: Readonly<Record<string, string>> = {
  'swagger-ui.css': 'text/css',
  'swagger-ui-bundle.js': 'text/javascript',
  'favicon-32x32.png': 'image/png',
};

/** Swagger UI styles itself inline and shows its icons as data URLs; script stays external. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** Serves Swagger UI at `/docs`; false for other paths. */
export async function serveDocsPage(context: RequestContext): Promise<boolean> {
  const { path } = context;
  if (path === '/docs' || path === '/docs/') {
    // Relative URLs, so that the page also works below a proxy's prefix.
    send(context, 'text/html; charset=utf-8', renderPage(path === '/docs' ? 'docs/' : ''));
    return true;
  }
  if (path === '/docs/init.js') {
    send(context, 'text/javascript', INIT);
    return true;
  }
  const name = path.slice('/docs/'.length);
  const type = Object.hasOwn(ASSETS, name) ? ASSETS[name] : undefined;
  if (type === undefined) return false;
  await sendAsset(context, name, type);
  return true;
}

function send(context: RequestContext, type: string, text: string): void {
  const body = Buffer.from(text);
  const headers = { 'Content-Type': type, 'Content-Length': body.length };
  context.send(200, { ...headers, 'Content-Security-Policy': POLICY }, body);
}

/** The files of Swagger UI, read once. */
const assets = new Map<string, Promise<Buffer>>();

async function sendAsset(context: RequestContext, name: string, type: string): Promise<void> {
  const content = assets.get(name) ?? readAsset(name);
  assets.set(name, content);
  const body = await content;
  const headers = { 'Content-Type': type, 'Content-Length': body.length };
  context.send(200, { ...headers, 'Cache-Control': 'public, max-age=3600' }, body);
}

function readAsset(name: string): Promise<Buffer> {
  const require = createRequire(import.meta.url);
  const folder = dirname(require.resolve('swagger-ui-dist/package.json'));
  return readFile(join(folder, name)).catch((error) => {
    assets.delete(name);
    throw error;
  });
}

/** No inline script: the page's policy forbids it. */
function renderPage(root: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chain queries</title>
<link rel="icon" href="${root}favicon-32x32.png">
<link rel="stylesheet" href="${root}swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="${root}swagger-ui-bundle.js"></script>
<script src="${root}init.js"></script>
</body>
</html>
`;
}

const INIT = `SwaggerUIBundle({
  url: new URL('openapi.json', document.currentScript.src).href,
  dom_id: '#swagger-ui',
  deepLinking: true,
  docExpansion: 'none',
  validatorUrl: null,
});
`;
