import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { EarlierMessage, SurfaceFile } from '@sibyl/plugin-kit/surface';
import { type Attachment, OracleError, type SentAttachment } from '@sibyl/protocol';
import { type SafeFetch, SafeFetchError } from '@sibyl/safe-fetch';
import { ByteBudget, type Holder } from '@sibyl/server-kit';
import type { FileStore, StoredFile } from '../store/file-store.js';
import type { FileService } from './file-service.js';

/** As in `attachments` of a message. */
const MAX_FILES = 10;
/** Files of earlier messages that clients send again with each request; models see the newest ones. */
const MAX_EARLIER_FILES = 20;
/** Larger files are uploaded, which needs no memory for the whole file. */
const MAX_FETCHED_BYTES = 10 * 1024 ** 2;
const FETCH_TIMEOUT_MS = 20_000;
const FETCH_MEMORY = {
  maxBytes: 8 * MAX_FETCHED_BYTES,
  maxBytesPerKey: 2 * MAX_FETCHED_BYTES,
};

/** The text of a message that has only files. */
export const FILES_ONLY = 'See the attached files.';

/** Fills in what the host knows about the user's own files; throws if a file is unknown. */
export async function completeAttachments(
  owner: string,
  attachments: readonly SentAttachment[],
  files: Pick<FileStore, 'get'>,
): Promise<Attachment[]> {
  return Promise.all(
    attachments.map(async ({ filename = '', mimetype = '', ...sent }) => {
      if (sent.fileId === undefined) return { ...sent, filename, mimetype };
      const { name, mediaType, size } = await files.get({ owner, fileId: sent.fileId });
      return { ...sent, filename: filename || name, mimetype: mediaType, size };
    }),
  );
}

export interface SentFilesDeps {
  readonly service: Pick<FileService, 'upload' | 'findSame'>;
  readonly fetch: SafeFetch;
}

interface Sender {
  readonly holder: Holder;
  /** Ends the requests for files. */
  readonly signal: AbortSignal | undefined;
}

/** An earlier message whose files are stored. */
export type AttachedMessage = Omit<EarlierMessage, 'files'> & {
  readonly attachments?: readonly Attachment[];
};

/** Stores the files that clients send inside of their messages. */
export class SentFiles {
  private readonly memory = new ByteBudget(FETCH_MEMORY);

  constructor(private readonly deps: SentFilesDeps) {}

  async attach(sender: Sender, files: readonly SurfaceFile[]): Promise<Attachment[]> {
    if (files.length > MAX_FILES)
      throw new OracleError('bad_request', { message: `A message has at most ${MAX_FILES} files` });
    const attachments: Attachment[] = [];
    for (const file of files) attachments.push(await this.store(sender, file));
    return attachments;
  }

  /** The newest files of a conversation that its client keeps; those before them are only mentioned. */
  async attachEarlier(
    sender: Sender,
    messages: readonly EarlierMessage[],
  ): Promise<AttachedMessage[]> {
    let room = MAX_EARLIER_FILES;
    const attached: AttachedMessage[] = [];
    for (const { files = [], ...message } of messages.toReversed()) {
      const kept = files.slice(0, Math.min(room, MAX_FILES));
      room -= kept.length;
      const lost = files.length - kept.length;
      const text = message.text || (files.length > 0 ? FILES_ONLY : '');
      attached.push({
        ...message,
        text: lost > 0 ? `${text}\n\n(Files that are no longer shown: ${lost})` : text,
        ...(kept.length > 0 && { attachments: await this.attach(sender, kept) }),
      });
    }
    return attached.reverse();
  }

  private async store(sender: Sender, file: SurfaceFile): Promise<Attachment> {
    if ('data' in file) return this.keep(sender, file.name ?? 'file', file.data);
    if (/^data:/i.test(file.url)) {
      const { name, data } = readDataUrl(file.url);
      return this.keep(sender, file.name ?? name, data);
    }
    return this.fetch(sender, file);
  }

  private async fetch(
    sender: Sender,
    { name, url }: { readonly name?: string | undefined; readonly url: string },
  ): Promise<Attachment> {
    const { ok: held, error } = this.memory.reserve(sender.holder.owner, MAX_FETCHED_BYTES);
    if (error !== undefined) throw new OracleError('uploads_full', { retryAfterSeconds: 5 });
    try {
      const data = await this.download(url, sender.signal);
      return await this.keep(sender, name ?? findName(url), data);
    } finally {
      held.release();
    }
  }

  private async download(url: string, signal?: AbortSignal): Promise<Uint8Array> {
    const limits = { maxBytes: MAX_FETCHED_BYTES, timeoutMs: FETCH_TIMEOUT_MS };
    try {
      const reply = await this.deps.fetch(url, { ...limits, signal: signal ?? null });
      if (reply.ok) return new Uint8Array(await reply.arrayBuffer());
      await reply.body?.cancel();
      throw unreadable(url, `its server answered ${reply.status}`);
    } catch (error) {
      if (error instanceof SafeFetchError) throw unreadable(url, error.message);
      throw error;
    }
  }

  /** A file that the user has already costs neither room nor an upload: clients send pictures again with each message. */
  private async keep({ holder }: Sender, name: string, data: Uint8Array): Promise<Attachment> {
    const { service } = this.deps;
    const hash = createHash('sha256').update(data).digest('hex');
    const upload = { holder, name, declaredBytes: data.byteLength, isForm: false };
    const stored: StoredFile =
      (await service.findSame(holder.owner, hash)) ??
      (await service.upload({ ...upload, body: Readable.from([data]) }));
    const { id: fileId, mediaType: mimetype, size } = stored;
    return { fileId, filename: stored.name, mimetype, size };
  }
}

const DATA_URL = /^data:([^,;]*)(?:;[^,;]*)*?(;base64)?,/i;

function readDataUrl(url: string): { readonly name: string; readonly data: Uint8Array } {
  const [head, type = '', encoding] = DATA_URL.exec(url) ?? [];
  if (head === undefined) throw invalidDataUrl();
  const body = url.slice(head.length);
  const data = encoding ? Buffer.from(body, 'base64') : decode(body);
  if (data.length === 0) throw invalidDataUrl();
  return { name: toName(type), data };
}

function decode(text: string): Uint8Array {
  try {
    return Buffer.from(decodeURIComponent(text));
  } catch {
    throw invalidDataUrl();
  }
}

const invalidDataUrl = () =>
  new OracleError('bad_request', {
    message: 'A file has an invalid data: URL; send data:<media type>;base64,<bytes>',
  });

const EXTENSIONS: Readonly<Record<string, string>> = { plain: 'txt', markdown: 'md' };

/** A readable name for a file that was sent without one. */
function toName(mediaType: string): string {
  const [kind, subtype = ''] = mediaType.toLowerCase().split('/');
  const name = kind === 'image' ? 'image' : 'file';
  return /^[a-z0-9]+$/.test(subtype) ? `${name}.${EXTENSIONS[subtype] ?? subtype}` : name;
}

function findName(url: string): string {
  const last = new URL(url).pathname.split('/').at(-1) ?? '';
  try {
    return decodeURIComponent(last) || 'file';
  } catch {
    return last;
  }
}

function unreadable(url: string, reason: string): OracleError {
  const host = URL.parse(url)?.host;
  const where = host ? `The file at ${host}` : 'A file';
  return new OracleError('bad_request', { message: `${where} could not be read: ${reason}` });
}
