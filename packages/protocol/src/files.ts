import { z } from 'zod';
import { Id, Timestamp, wholeNumber } from './identifiers.js';

/** What became of the text of a file. */
const FileText = z
  .object({
    status: z
      .enum(['pending', 'ready', 'none', 'failed'])
      .describe('`none`: files of this type have no text; `failed`: `error` says why'),
    unit: z
      .enum(['page', 'sheet', 'paragraph', 'line'])
      .optional()
      .describe('What positions in the file count'),
    count: z.int().min(0).optional().describe('How many units were read'),
    isComplete: z.boolean().optional().describe('false if only the beginning could be read'),
    error: z.string().optional(),
  })
  .meta({ id: 'FileText' });

/** A file of the user. */
export const FileInfo = z
  .object({
    fileId: Id,
    name: z.string(),
    mediaType: z
      .string()
      .describe('As the content shows; the type that the client sent is ignored'),
    size: z.int().min(0).describe('Bytes'),
    sha256: z.string().describe('Hexadecimal'),
    createdAt: Timestamp,
    text: FileText,
  })
  .meta({ id: 'FileInfo' });
export type FileInfo = z.infer<typeof FileInfo>;

/** Query of `POST /files`. */
export const UploadFile = z.strictObject({
  name: z
    .string()
    .max(1024)
    .optional()
    .describe('The name of the file, if the body is the file itself'),
});
export type UploadFile = z.infer<typeof UploadFile>;

/** Query of `GET /files`. */
export const ListFiles = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(20),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListFiles = z.infer<typeof ListFiles>;

/** Reply of `GET /files`: newest first. */
export const FilePage = z
  .object({
    files: z.array(FileInfo),
    total: z.int().min(0),
    usedBytes: z.int().min(0).describe('Of all files; a small file counts as 4 kB'),
    maxBytes: z.int().min(0).describe('What this user may store'),
  })
  .meta({ id: 'FilePage' });
export type FilePage = z.infer<typeof FilePage>;

/** Reply of `DELETE /files/:fileId`. */
export const FileDeleted = z.object({ message: z.string() }).meta({ id: 'FileDeleted' });
export type FileDeleted = z.infer<typeof FileDeleted>;
