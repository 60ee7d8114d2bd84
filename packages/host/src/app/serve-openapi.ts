import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Express } from 'express';
import type { ApiDocumentDeps } from './openapi.js';

/** What the page needs of Swagger UI; nothing else of its folder is served. */
const ASSETS = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'];

/** Serves Swagger UI at `/docs` and the OpenAPI document at `/docs/openapi.json` and `/docs-json`; both are made on first use. */
export function serveApiDocument(nest: NestExpressApplication, deps: ApiDocumentDeps): void {
  const express: Express = nest.getHttpAdapter().getInstance();
  let document: Promise<object> | undefined;
  express.get('/docs', ({ originalUrl }, response) => {
    // Relative addresses, so that the page also works below a proxy's prefix.
    const base = /\/(\?|$)/.test(originalUrl) ? '' : 'docs/';
    response.type('html').send(pageOf(deps.oracle.name, base));
  });
  express.get('/docs/init.js', (_, response) => {
    response.type('js').send(INIT);
  });
  for (const path of ['/docs/openapi.json', '/docs-json']) {
    express.get(path, async (_, response) => {
      document ??= documentOf(nest, deps).catch((error) => {
        document = undefined;
        throw error;
      });
      response.json(await document);
    });
  }
  for (const name of ASSETS) {
    express.get(`/docs/${name}`, (_, response) => {
      response.sendFile(name, { root: uiFolder(), maxAge: '1h' });
    });
  }
}

/** Swagger takes as long to load as the rest of the host, so that happens when somebody asks. */
async function documentOf(nest: NestExpressApplication, deps: ApiDocumentDeps): Promise<object> {
  const { createApiDocument } = await import('./openapi.js');
  return createApiDocument(nest, deps);
}

function uiFolder(): string {
  const require = createRequire(import.meta.url);
  return dirname(require.resolve('swagger-ui-dist/package.json'));
}

/** No inline script: the page's policy forbids it. */
function pageOf(name: string, base: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${name.replaceAll(/[&<>"]/g, '')} interface</title>
<link rel="icon" href="${base}favicon-32x32.png">
<link rel="stylesheet" href="${base}swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="${base}swagger-ui-bundle.js"></script>
<script src="${base}init.js"></script>
</body>
</html>
`;
}

const INIT = `SwaggerUIBundle({
  url: new URL('openapi.json', document.currentScript.src).href,
  dom_id: '#swagger-ui',
  deepLinking: true,
  validatorUrl: null,
});
`;
