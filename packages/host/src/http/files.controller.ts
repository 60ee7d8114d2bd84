import { Controller, Delete, Get, HttpCode, Param, Post, Query, Req, Res } from '@nestjs/common';
import { CurrentCaller, Describe, NeedsOwnKey, StartsWork } from '@sibyl/plugin-kit';
import {
  FileDeleted,
  FileInfo,
  FilePage,
  ListFiles,
  OracleError,
  UploadFile,
} from '@sibyl/protocol';
import type { Request, Response } from 'express';
import type { Caller } from '../auth/caller.js';
import { RateLimits } from '../auth/rate-limits.js';
import { toSafeType } from '../files/detect-type.js';
import { FileService } from '../files/file-service.js';
import { chargeBody } from '../files/upload-limits.js';
import { FileStore, type StoredFile } from '../store/file-store.js';
import { allowLongBody } from './express.js';
import { ReplySender } from './replies.js';
import { StreamedBody } from './request-body.js';
import type { ProvenRequest } from './ucan-guard.js';
import { openUpload } from './uploads.js';

/** Files of any content never run in a browser. */
const FILE_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'";

const FILE_TYPES = [
  'application/octet-stream',
  'application/pdf',
  'text/plain',
  'image/png',
  'image/jpeg',
  'image/gif',
  'image/webp',
];

@Controller('files')
export class FilesController {
  constructor(
    private readonly service: FileService,
    private readonly files: FileStore,
    private readonly replies: ReplySender,
    private readonly limits: RateLimits,
  ) {}

  @Post()
  @StartsWork()
  @HttpCode(200)
  @StreamedBody()
  @Describe({
    summary:
      'Store a file: the body, or the first file of a form. A file with the same bytes is stored once: the reply is the one that exists',
    reply: FileInfo,
    bodyTypes: ['application/octet-stream', 'multipart/form-data'],
    errors: [
      'invalid_upload',
      'request_timeout',
      'file_too_large',
      'file_space_exhausted',
      'unsupported_media_type',
      'too_many_uploads',
      'uploads_full',
      'address_busy',
      'upload_limit_reached',
      'files_full',
      'rate_limited',
      'disk_full',
    ],
  })
  async upload(
    @Query({ schema: UploadFile }) { name }: UploadFile,
    @Req() request: ProvenRequest,
    @Res({ passthrough: true }) response: Response,
  ): Promise<FileInfo> {
    const end = allowLongBody(request);
    try {
      const { holder } = request.caller;
      const upload = await openUpload(request, name);
      const charged = chargeBody(upload, (bytes) => this.limits.takeFile(bytes, holder));
      const body = this.replies.limitBody(request.caller, response, charged);
      return toFileView(await this.service.upload({ ...upload, holder, body }));
    } catch (error) {
      // The rest of the body is not read, so this connection cannot be used again.
      response.setHeader('Connection', 'close');
      throw error;
    } finally {
      end();
    }
  }

  @Get()
  @Describe({ summary: "The caller's files, newest first", reply: FilePage })
  async list(
    @CurrentCaller() { did: owner }: Caller,
    @Query({ schema: ListFiles }) page: ListFiles,
  ): Promise<FilePage> {
    const [files, measured] = await Promise.all([
      this.files.list({ owner, ...page }),
      this.files.measure(owner),
    ]);
    const { maxBytesPerUser: maxBytes } = this.service.limits;
    return { files: files.map(toFileView), ...measured, maxBytes };
  }

  @Get(':fileId')
  @Describe({
    summary: 'The bytes of a file; never of a type that a browser executes',
    mediaTypes: FILE_TYPES,
    otherReplies: { 206: { when: 'The bytes that the Range header names' } },
    headers: {
      range: 'The bytes to send, such as `bytes=0-1023`',
      'if-range': 'The ETag of the file; the range is ignored if it differs',
    },
    errors: ['file_not_found', 'range_not_satisfiable', 'too_many_streams'],
  })
  async download(
    @CurrentCaller() { did: owner }: Caller,
    @Param('fileId') fileId: string,
    @Req() request: ProvenRequest,
    @Res() response: Response,
  ): Promise<void> {
    const file = await this.files.get({ owner, fileId });
    await this.replies.withSlot(owner, () => this.send(file, request, response));
  }

  @Get(':fileId/info')
  @Describe({
    summary: 'A file without its bytes, and whether its text can be searched',
    reply: FileInfo,
    errors: ['file_not_found'],
  })
  async info(
    @CurrentCaller() { did: owner }: Caller,
    @Param('fileId') fileId: string,
  ): Promise<FileInfo> {
    return toFileView(await this.files.get({ owner, fileId }));
  }

  @Delete(':fileId')
  @NeedsOwnKey()
  @Describe({
    summary: 'Delete a file and its text',
    reply: FileDeleted,
    errors: ['file_not_found'],
  })
  async remove(
    @CurrentCaller() { did: owner }: Caller,
    @Param('fileId') fileId: string,
  ): Promise<FileDeleted> {
    if (!(await this.service.delete({ owner, fileId }))) throw new OracleError('file_not_found');
    return { message: 'File deleted' };
  }

  private async send(file: StoredFile, request: ProvenRequest, response: Response): Promise<void> {
    const etag = `"${file.hash}"`;
    const range = findRange(file, etag, request, response);
    const { start, end } = range ?? { start: 0, end: file.size };
    // Encodes the name; the type it guesses is replaced.
    const disposition = response.attachment(file.name).getHeader('Content-Disposition');
    response.removeHeader('Content-Type');
    response.removeHeader('Content-Disposition');
    await this.replies.sendBytes(request.caller, response, {
      status: range ? 206 : 200,
      headers: {
        'Content-Type': toSafeType(file.mediaType),
        'Content-Length': String(end - start),
        'Content-Disposition': String(disposition),
        'Content-Security-Policy': FILE_POLICY,
        'Accept-Ranges': 'bytes',
        ETag: etag,
        ...(range && { 'Content-Range': `bytes ${start}-${end - 1}/${file.size}` }),
      },
      bytes: this.service.read(file, { start, end }),
    });
  }
}

/** The range to send, `end` exclusive; undefined for all bytes, also if several ranges are wanted. */
function findRange(
  { size }: StoredFile,
  etag: string,
  request: Request,
  response: Response,
): { readonly start: number; readonly end: number } | undefined {
  const condition = request.headers['if-range'];
  if (condition !== undefined && condition !== etag) return undefined;
  const ranges = request.range(size, { combine: true });
  if (ranges === -1) {
    response.setHeader('Content-Range', `bytes */${size}`);
    throw new OracleError('range_not_satisfiable');
  }
  if (!Array.isArray(ranges) || ranges.type !== 'bytes' || ranges.length !== 1) return undefined;
  const [{ start, end } = { start: 0, end: size - 1 }] = ranges;
  return { start, end: end + 1 };
}

function toFileView({ id, name, mediaType, size, hash, text, createdAt }: StoredFile): FileInfo {
  return {
    fileId: id,
    name,
    mediaType,
    size,
    sha256: hash,
    createdAt: new Date(createdAt).toISOString(),
    text,
  };
}
