import { createHash } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import {
  Controller,
  type DynamicModule,
  Get,
  Inject,
  Module,
  Param,
  Req,
  Res,
} from '@nestjs/common';
import { Describe, definePlugin, type SetupContext, sharedKey } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';

@Module({})
class ChatPageModule {}

const FOLDER = fileURLToPath(new URL('dist', import.meta.resolve('@sibyl/web/package.json')));

const MATRIX_BASE_URL = sharedKey<string>('matrixBaseUrl');
const PAGE_PATH = sharedKey<string>('page');

function readPage({ shared, logger }: SetupContext): Page {
  const isBuilt = existsSync(FOLDER);
  if (!isBuilt) logger.warn({}, 'the chat page is not built; run "npm run build"');
  const matrixBaseUrl = shared.get(MATRIX_BASE_URL);
  return {
    files: isBuilt ? listPageFiles(FOLDER) : new Map(),
    settings: matrixBaseUrl === undefined ? {} : { matrixBaseUrl },
  };
}

/** Serves the chat page at `/app`. */
export const chatPage = definePlugin({
  name: 'chat-page',
  version: '0.1.0',
  manifest: {
    title: 'Chat page',
    summary: 'A page to talk to the oracle, at /app.',
    whenToUse: ['never by the agent: it is for people'],
    category: 'core',
    visibility: 'silent',
  },
  softDependsOn: ['matrix'],
  setup: readPage,
  getSharedState: () => PAGE_PATH.share('/app/'),
  getAuthExcludedRoutes: () => ['/app', '/app/(.*)'],
  getNestModules: ({ services: page }): DynamicModule[] => [
    {
      module: ChatPageModule,
      controllers: [PageController],
      providers: [{ provide: PAGE, useValue: page }],
    },
  ],
});

const PAGE = Symbol('the page');

/** Public settings that the page reads when it loads. */
const PageSettings = z
  .object({ matrixBaseUrl: z.string().optional() })
  .meta({ id: 'PageSettings' });

interface Page {
  readonly files: ReadonlyMap<string, PageFile>;
  readonly settings: { readonly matrixBaseUrl?: string };
}

interface PageRequest {
  readonly path: string;
  get(header: string): string | undefined;
}

interface PageResponse {
  redirect(status: number, url: string): void;
  setHeader(name: string, value: string): void;
  status(code: number): PageResponse;
  end(body?: Buffer): void;
  json(body: object): void;
}

const NOT_MODIFIED = { 304: { when: 'The copy that `If-None-Match` names is current' } };

const ONE_YEAR = 'public, max-age=31536000, immutable';

@Controller('app')
class PageController {
  private readonly page: Page;
  private readonly policy: string;

  constructor(@Inject(PAGE) page: Page) {
    this.page = page;
    this.policy = buildPolicy(page.settings.matrixBaseUrl);
  }

  @Get()
  @Describe({
    summary: 'The chat page',
    mediaTypes: ['text/html'],
    errors: ['not_found'],
    otherReplies: { ...NOT_MODIFIED, 308: { when: 'Leads to `/app/`' } },
  })
  async index(@Req() request: PageRequest, @Res() response: PageResponse): Promise<void> {
    // The page's URLs are relative to this folder.
    if (!request.path.endsWith('/')) return void response.redirect(308, 'app/');
    await this.send('index.html', request, response);
  }

  @Get('settings.json')
  @Describe({ summary: 'Settings of the chat page', reply: PageSettings })
  settings(@Res() response: PageResponse): void {
    response.json(this.page.settings);
  }

  @Get('*path')
  @Describe({
    summary: 'The files of the chat page',
    mediaTypes: ['*/*'],
    errors: ['not_found'],
    otherReplies: NOT_MODIFIED,
  })
  async file(
    @Param('path') path: readonly string[] | string,
    @Req() request: PageRequest,
    @Res() response: PageResponse,
  ): Promise<void> {
    await this.send([path].flat().join('/'), request, response);
  }

  private async send(name: string, request: PageRequest, response: PageResponse): Promise<void> {
    // `/app/operator` is a separate page.
    const file = this.page.files.get(name) ?? this.page.files.get(`${name}.html`);
    if (!file) throw new OracleError('not_found');
    const { bytes, etag } = await file.read();
    response.setHeader('Content-Security-Policy', this.policy);
    response.setHeader('Cache-Control', file.isImmutable ? ONE_YEAR : 'no-cache');
    response.setHeader('ETag', etag);
    response.setHeader('Vary', 'Accept-Encoding');
    if (request.get('if-none-match') === etag) return void response.status(304).end();
    response.setHeader('Content-Type', file.type);
    if (!/\bbr\b/.test(request.get('accept-encoding') ?? '')) return void response.end(bytes);
    response.setHeader('Content-Encoding', 'br');
    response.end(await file.brotli());
  }
}

/**
 * No inline scripts or styles and no other origins, except the homeserver for files, and images that the user asks
 * for: the page loads none by itself.
 */
function buildPolicy(matrixBaseUrl: string | undefined): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' blob: https:",
    "manifest-src 'self'",
    `connect-src 'self'${matrixBaseUrl ? ` ${new URL(matrixBaseUrl).origin}` : ''}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  // As plain text, browsers show it.
  '.md': 'text/plain; charset=utf-8',
  '.webmanifest': 'application/manifest+json',
};

/** A tenth larger than at the highest quality, which takes a second. */
const QUALITY = 5;
const compress = promisify(brotliCompress);

/** A file of the page. It is read and compressed at the first request, so that it does not slow the start, and kept. */
interface PageFile {
  readonly type: string;
  /** Its name contains a hash of its content, so that browsers may cache it forever. */
  readonly isImmutable: boolean;
  read(): Promise<{ readonly bytes: Buffer; readonly etag: string }>;
  brotli(): Promise<Buffer>;
}

/** Lists the files of a folder by path: no path from a request reaches the disk. */
export function listPageFiles(folder: string): ReadonlyMap<string, PageFile> {
  const files = new Map<string, PageFile>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = relative(folder, path).split(sep).join('/');
    files.set(name, toPageFile(name, path));
  }
  return files;
}

function toPageFile(name: string, path: string): PageFile {
  const read = keep(async () => {
    const bytes = await readFile(path).catch((error: NodeJS.ErrnoException) => {
      // Another version of the page has been built.
      throw error.code === 'ENOENT' ? new OracleError('not_found') : error;
    });
    const digest = createHash('sha256').update(bytes).digest('base64url');
    return { bytes, etag: `"${digest.slice(0, 22)}"` };
  });
  const brotli = keep(async () => {
    const { bytes } = await read();
    return compress(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: QUALITY } });
  });
  const type = TYPES[extname(name)] ?? 'application/octet-stream';
  return { type, isImmutable: name.startsWith('assets/'), read, brotli };
}

/** Keeps the result of the first call that succeeds. */
function keep<T>(compute: () => Promise<T>): () => Promise<T> {
  let kept: Promise<T> | undefined;
  return () => {
    kept ??= compute().catch((error) => {
      kept = undefined;
      throw error;
    });
    return kept;
  };
}
