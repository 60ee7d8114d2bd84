import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

export interface DocsPageOptions {
  readonly title: string;
  /** What Swagger UI shows of each tag at first. */
  readonly docExpansion?: 'list' | 'none';
}

/** A file of the page and the headers to send it with. */
export interface DocsFile {
  readonly headers: Readonly<Record<string, string | number>>;
  readonly body: Buffer;
}

/** What the page needs of Swagger UI, which the package contains. */
const ASSETS: Readonly<Record<string, string>> = {
  'swagger-ui.css': 'text/css',
  'swagger-ui-bundle.js': 'text/javascript',
  'favicon-32x32.png': 'image/png',
};

/** Swagger UI styles itself inline and shows its icons as data URLs; scripts stay external. */
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

/** Swagger UI at `/docs`, showing the document at `/docs/openapi.json`. */
export class DocsPage {
  /** Every path of the page, except the document. */
  static readonly paths: readonly string[] = [
    '/docs',
    '/docs/init.js',
    ...Object.keys(ASSETS).map((name) => `/docs/${name}`),
  ];

  /** The files of Swagger UI, read once. */
  private readonly assets = new Map<string, Promise<Buffer>>();

  constructor(private readonly options: DocsPageOptions) {}

  /** The file at a path such as `/docs/init.js`; undefined if it does not belong to the page. */
  async find(path: string): Promise<DocsFile | undefined> {
    // Relative addresses, so that the page also works below a proxy's prefix.
    if (path === '/docs') return this.buildPage('docs/');
    if (path === '/docs/') return this.buildPage('');
    if (path === '/docs/init.js') return toDocsFile('text/javascript', this.buildScript());
    if (!path.startsWith('/docs/')) return undefined;
    return this.findAsset(path.slice('/docs/'.length));
  }

  /** Without inline scripts, which the policy forbids. */
  private buildPage(root: string): DocsFile {
    return toDocsFile(
      'text/html; charset=utf-8',
      `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${this.options.title.replaceAll(/[&<>"]/g, '')}</title>
<link rel="icon" href="${root}favicon-32x32.png">
<link rel="stylesheet" href="${root}swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="${root}swagger-ui-bundle.js"></script>
<script src="${root}init.js"></script>
</body>
</html>
`,
    );
  }

  private buildScript(): string {
    return `SwaggerUIBundle({
  url: new URL('openapi.json', document.currentScript.src).href,
  dom_id: '#swagger-ui',
  deepLinking: true,
  docExpansion: '${this.options.docExpansion ?? 'list'}',
  validatorUrl: null,
});
`;
  }

  private async findAsset(name: string): Promise<DocsFile | undefined> {
    const type = Object.hasOwn(ASSETS, name) ? ASSETS[name] : undefined;
    if (type === undefined) return undefined;
    const content = this.assets.get(name) ?? this.readAsset(name);
    this.assets.set(name, content);
    const body = await content;
    const headers = { 'Content-Type': type, 'Content-Length': body.length };
    return { headers: { ...headers, 'Cache-Control': 'public, max-age=3600' }, body };
  }

  private readAsset(name: string): Promise<Buffer> {
    const path = fileURLToPath(import.meta.resolve(`@sibyl/server-kit/swagger-ui/${name}`));
    return readFile(path).catch((error) => {
      this.assets.delete(name);
      throw error;
    });
  }
}

function toDocsFile(type: string, text: string): DocsFile {
  const body = Buffer.from(text);
  const headers = { 'Content-Type': type, 'Content-Length': body.length };
  return { headers: { ...headers, 'Content-Security-Policy': POLICY }, body };
}
