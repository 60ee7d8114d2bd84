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

const attachmentFields = {
  fileId: Id.optional().describe('A file of the user, as `POST /files` returned it'),
  mxcUri: z
    .string()
    .max(512)
    .regex(/^mxc:\/\/[^/\s]+\/[^/\s]+$/, { error: 'must be mxc://server/media' })
    .optional(),
  eventId: z
    .string()
    .max(255)
    .regex(/^\$\S+$/, { error: 'must start with $' })
    .optional(),
  filename: z.string().min(1).max(255),
  mimetype: z.string().min(1).max(255),
  size: z.int().min(0).optional(),
  category: z.string().max(64).optional(),
};

type AttachmentPlace = Partial<Record<'fileId' | 'mxcUri' | 'eventId', string | undefined>>;

const hasPlace = ({ fileId, mxcUri, eventId }: AttachmentPlace) =>
  (fileId ?? mxcUri ?? eventId) !== undefined;

const hasOnePlace = ({ fileId, mxcUri, eventId }: AttachmentPlace) =>
  fileId === undefined || (mxcUri ?? eventId) === undefined;

/** A file of the user, or one in Matrix; with both `mxcUri` and `eventId` the event wins. */
export const Attachment = z
  .strictObject(attachmentFields)
  .refine(hasPlace, { error: 'needs fileId, mxcUri or eventId' })
  .refine(hasOnePlace, { error: 'fileId excludes mxcUri and eventId' })
  .meta({
    id: 'Attachment',
    anyOf: [{ required: ['fileId'] }, { required: ['mxcUri'] }, { required: ['eventId'] }],
  });

export type Attachment = z.infer<typeof Attachment>;

/** An attachment as a client sends it: the host knows name and type of the user's own files. */
export const SentAttachment = z
  .strictObject({
    ...attachmentFields,
    filename: attachmentFields.filename.optional(),
    mimetype: attachmentFields.mimetype.optional(),
  })
  .refine(hasPlace, { error: 'needs fileId, mxcUri or eventId' })
  .refine(hasOnePlace, { error: 'fileId excludes mxcUri and eventId' })
  .refine(({ fileId, filename }) => fileId !== undefined || filename !== undefined, {
    path: ['filename'],
    error: 'is required without fileId',
  })
  .refine(({ fileId, mimetype }) => fileId !== undefined || mimetype !== undefined, {
    path: ['mimetype'],
    error: 'is required without fileId',
  })
  .meta({
    id: 'SentAttachment',
    anyOf: [
      {
        required: ['fileId'],
        not: { anyOf: [{ required: ['mxcUri'] }, { required: ['eventId'] }] },
      },
      { required: ['mxcUri', 'filename', 'mimetype'], not: { required: ['fileId'] } },
      { required: ['eventId', 'filename', 'mimetype'], not: { required: ['fileId'] } },
    ],
  });

export type SentAttachment = z.infer<typeof SentAttachment>;
