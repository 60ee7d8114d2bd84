import {
  Body,
  Controller,
  Delete,
  Get,
  HttpCode,
  Param,
  Post,
  Query,
  Req,
  Res,
} from '@nestjs/common';
import { CurrentCaller, Describe, NeedsOwnKey, StartsWork } from '@sibyl/plugin-kit';
import { Erased, EraseMe, ImportJob, ReadUsage, Usage } from '@sibyl/protocol';
import type { Response } from 'express';
import type { Caller } from '../auth/caller.js';
import { Erasure } from '../own-data/erasure.js';
import { Exports } from '../own-data/exports.js';
import { Imports } from '../own-data/imports.js';
import { readUsage } from '../own-data/usage.js';
import { UsageStore } from '../store/usage-store.js';
import { allowLongBody } from './express.js';
import { ReplySender } from './replies.js';
import { StreamedBody } from './request-body.js';
import type { ProvenRequest } from './ucan-guard.js';
import { limitChunks, limitTime } from './uploads.js';

/** Everything that is stored about the caller. */
@Controller('me')
export class MeController {
  constructor(
    private readonly exports: Exports,
    private readonly imports: Imports,
    private readonly erasure: Erasure,
    private readonly replies: ReplySender,
  ) {}

  @Get('export')
  @StartsWork()
  @NeedsOwnKey()
  @Describe({
    summary:
      'Everything that is stored about the caller: a zip archive of JSON lines and files, signed by the oracle',
    mediaTypes: ['application/zip'],
    errors: ['too_many_exports', 'too_many_streams', 'address_busy'],
  })
  async export(@Req() request: ProvenRequest, @Res() response: Response): Promise<void> {
    const { caller } = request;
    const day = new Date().toISOString().slice(0, 10);
    await this.replies.withSlot(caller.did, () =>
      this.replies.sendBytes(caller, response, {
        status: 200,
        headers: {
          'Content-Type': 'application/zip',
          'Content-Disposition': `attachment; filename="sibyl-export-${day}.zip"`,
        },
        bytes: this.exports.open(caller.holder),
      }),
    );
  }

  @Post('import')
  @StartsWork()
  @NeedsOwnKey()
  @HttpCode(200)
  @StreamedBody()
  @Describe({
    summary:
      'Import an archive of `GET /me/export`, or an export of ChatGPT (the zip archive or its conversations.json), in the background. Nothing that exists is changed',
    reply: ImportJob,
    bodyTypes: ['application/zip', 'application/octet-stream', 'application/json'],
    errors: [
      'invalid_archive',
      'body_too_large',
      'import_running',
      'imports_busy',
      'address_busy',
      'upload_limit_reached',
      'disk_full',
      'request_timeout',
    ],
  })
  async import(
    @Req() request: ProvenRequest,
    @Res({ passthrough: true }) response: Response,
  ): Promise<ImportJob> {
    const end = allowLongBody(request);
    const body = limitTime(limitChunks(request));
    try {
      const { 'content-length': length } = request.headers;
      const declaredBytes = length === undefined ? undefined : Number(length);
      return await this.imports.start(request.caller.holder, { body, declaredBytes });
    } catch (error) {
      // The rest of the body is not read, so this connection cannot be used again.
      response.setHeader('Connection', 'close');
      throw error;
    } finally {
      end();
    }
  }

  @Get('import/:id')
  @Describe({
    summary: 'The progress of an import',
    reply: ImportJob,
    errors: ['import_not_found'],
  })
  async findImport(
    @CurrentCaller() { did: owner }: Caller,
    @Param('id') id: string,
  ): Promise<ImportJob> {
    return this.imports.find(owner, id);
  }

  @Delete()
  @NeedsOwnKey()
  @HttpCode(200)
  @Describe({
    summary:
      'Erase everything that is stored about the caller, confirmed by an invocation for this one request',
    reply: Erased,
    errors: ['invalid_confirmation'],
  })
  async erase(
    @CurrentCaller() caller: Caller,
    @Body({ schema: EraseMe }) { invocation }: EraseMe,
  ): Promise<Erased> {
    return this.erasure.erase(caller, invocation);
  }
}

@Controller('usage')
export class UsageController {
  constructor(private readonly usage: UsageStore) {}

  @Get()
  @Describe({
    summary: 'Turns, tokens and cost of the caller by day, model and session',
    reply: Usage,
  })
  async read(
    @CurrentCaller() { did: owner }: Caller,
    @Query({ schema: ReadUsage }) { days }: ReadUsage,
  ): Promise<Usage> {
    return readUsage(this.usage, owner, days);
  }
}
