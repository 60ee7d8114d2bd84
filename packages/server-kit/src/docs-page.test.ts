import { describe, expect, it } from 'vitest';
import { DocsPage } from './docs-page.js';

const page = new DocsPage({
  title: 'A <b>"chain"</b>',
  docExpansion: 'none',
});

describe('DocsPage', () => {
  it.each([
    ['/docs', 'src="docs/init.js"'],
    ['/docs/', 'src="init.js"'],
  ])('%s is a page with relative addresses and no inline script', async (path, script) => {
    const file = await page.find(path);
    const html = String(file?.body);
    expect(html).toContain(script);
    expect(html).toContain('<title>A bchain/b</title>');
    expect(html).not.toMatch(/<script>/);
    expect(file?.headers).toMatchObject({
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Security-Policy': expect.stringContaining("default-src 'none'"),
    });
  });

  it('/docs/init.js shows openapi.json beside it', async () => {
    const file = await page.find('/docs/init.js');
    expect(String(file?.body)).toContain("new URL('openapi.json', document.currentScript.src)");
    expect(String(file?.body)).toContain("docExpansion: 'none'");
  });

  it.each(['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'])(
    '/docs/%s comes from Swagger UI and may be cached',
    async (name) => {
      const file = await page.find(`/docs/${name}`);
      expect(file?.body.length).toBeGreaterThan(100);
      expect(file?.headers).toMatchObject({ 'Cache-Control': 'public, max-age=3600' });
    },
  );

  it.each(['/docs/package.json', '/docs/../package.json', '/docs/constructor', '/', '/docsx'])(
    '%s does not belong to it',
    async (path) => {
      expect(await page.find(path)).toBeUndefined();
    },
  );
});
