import { Controller, Get, Inject, Param, Req, Res } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import type { PageFile } from './page-files.js';

export const PAGE = Symbol('the page');

/** What the controller serves. */
export interface Page {
  readonly files: ReadonlyMap<string, PageFile>;
  /** What the page is told at its start; nothing secret. */
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

const ONE_YEAR = 'public, max-age=31536000, immutable';

@Controller('app')
export class PageController {
  readonly #page: Page;
  readonly #policy: string;

  constructor(@Inject(PAGE) page: Page) {
    this.#page = page;
    this.#policy = policyFor(page.settings.matrixBaseUrl);
  }

  @Get()
  @Describe({ summary: 'The chat page' })
  async index(@Req() request: PageRequest, @Res() response: PageResponse): Promise<void> {
    // The page's own addresses are relative to the folder it is in.
    if (!request.path.endsWith('/')) return void response.redirect(308, 'app/');
    await this.#send('index.html', request, response);
  }

  @Get('settings.json')
  @Describe({ summary: 'What the chat page is told at its start' })
  settings(@Res() response: PageResponse): void {
    response.json(this.#page.settings);
  }

  @Get('*path')
  @Describe({ summary: 'The files of the chat page' })
  async file(
    @Param('path') path: readonly string[] | string,
    @Req() request: PageRequest,
    @Res() response: PageResponse,
  ): Promise<void> {
    await this.#send([path].flat().join('/'), request, response);
  }

  async #send(name: string, request: PageRequest, response: PageResponse): Promise<void> {
    const file = this.#page.files.get(name);
    if (!file) throw new OracleError('not_found');
    response.setHeader('Content-Security-Policy', this.#policy);
    response.setHeader('Cache-Control', file.isImmutable ? ONE_YEAR : 'no-cache');
    response.setHeader('ETag', file.etag);
    response.setHeader('Vary', 'Accept-Encoding');
    if (request.get('if-none-match') === file.etag) return void response.status(304).end();
    response.setHeader('Content-Type', file.type);
    if (!/\bbr\b/.test(request.get('accept-encoding') ?? '')) return void response.end(file.bytes);
    response.setHeader('Content-Encoding', 'br');
    response.end(await file.brotli());
  }
}

/** No inline script or style, nothing from elsewhere; files go to the homeserver alone. */
function policyFor(matrixBaseUrl: string | undefined): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    `connect-src 'self'${matrixBaseUrl ? ` ${new URL(matrixBaseUrl).origin}` : ''}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}
