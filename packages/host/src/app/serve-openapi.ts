import type { NestExpressApplication } from '@nestjs/platform-express';
import { DocsPage } from '@sibyl/server-kit';
import type { Express, Request, Response } from 'express';
import type { Services } from './services.js';

/** Serves Swagger UI at `/docs`, and the OpenAPI document at `/docs/openapi.json` and `/docs-json`; builds both on first use. */
export function serveApiDocument(nest: NestExpressApplication, services: Services): void {
  const express: Express = nest.getHttpAdapter().getInstance();
  let document: Promise<object> | undefined;
  for (const path of ['/docs/openapi.json', '/docs-json']) {
    express.get(path, async (_, response) => {
      document ??= buildDocument(nest, services).catch((error) => {
        document = undefined;
        throw error;
      });
      response.json(await document);
    });
  }
  const page = new DocsPage({ title: `${services.oracle.name} API` });
  for (const path of DocsPage.paths)
    express.get(path, async (request: Request, response: Response, next) => {
      const file = await page.find(request.path.toLowerCase());
      if (!file) return next();
      response.writeHead(200, file.headers).end(file.body);
    });
}

/** Few hosts are asked for it, so it is loaded with the first request. */
async function buildDocument(nest: NestExpressApplication, services: Services): Promise<object> {
  const { createApiDocument } = await import('./openapi.js');
  return createApiDocument(nest, services);
}
