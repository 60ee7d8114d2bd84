import { ByteBudget, LruMap, RateLimiter, type TurnContext, textBytes } from '@sibyl/plugin-kit';
import { FILE_SOURCES, type FileReadOptions, type FileSource } from '@sibyl/plugin-kit/chat';
import type { Attachment } from '@sibyl/protocol';
import { listChatFiles } from './chat-files.js';
import type { TextContent } from './file-content.js';
import { decryptFile, downloadFile, locateFile } from './file-download.js';
import { HomeserverDownError, type HomeserverHealth, toHost } from './health.js';
import { findUserHomeserver, type Homeserver, type MatrixConfig } from './homeserver.js';
import { ReaderSlots } from './reader-slots.js';

/** Security §4. */
const FILE_BYTES = 25 * 1024 ** 2;
const MESSAGE_BYTES = 50 * 1024 ** 2;
/** What one user may have read per minute, in any number of messages. */
const MEGABYTES_PER_MINUTE = 200;
/** Time limit for all files of a message, without the wait for a slot. */
const MESSAGE_MS = 60_000;

/** Characters of a file that the model receives; the rest is dropped. */
const FILE_LENGTH = 60_000;

/** The content of an attachment, or why it cannot be read. */
export type ReadFile =
  | { readonly name: string; readonly type: string; readonly text: string }
  | { readonly name: string; readonly type: string; readonly image: Uint8Array }
  | { readonly name: string; readonly type: string; readonly error: string };

/** The host itself reads the files that it stores. */
export const isInMatrix = ({ fileId }: Attachment) => fileId === undefined;

/** Images of earlier messages that are still part of a conversation. */
const MAX_IMAGES_BYTES = 64 * 1024 ** 2;

interface FileReaderDeps {
  readonly health: HomeserverHealth;
  readonly config: MatrixConfig;
}

/** Reads the files of messages within limits for all of them together. */
export class FileReader {
  readonly slots = new ReaderSlots({ total: 16, perUser: 2, perHomeserver: 8, waiting: 1000 });
  /** Each takes a thread and up to 256 MB. */
  private readonly pdfSlots = new ReaderSlots({
    total: 2,
    perUser: 1,
    perHomeserver: 2,
    waiting: 1000,
  });
  /** Bytes of files that running turns hold. */
  readonly budget = new ByteBudget({ maxBytes: 256 * 1024 ** 2, maxBytesPerKey: 100 * 1024 ** 2 });

  private readonly rates = new RateLimiter({ maxBytes: 1024 ** 2 });
  /** Images by their user and address, so that later turns need not read them again. */
  private readonly images = new LruMap<string, ReadFile>({
    maxBytes: MAX_IMAGES_BYTES,
    measure: (file, key) => textBytes(key) + ('image' in file ? file.image.byteLength : 0),
  });

  constructor(private readonly deps: FileReaderDeps) {}

  /** Reads the files of the message, those of other plugins too. */
  async read(turn: TurnContext, ownRoom: string | undefined): Promise<ReadFile[]> {
    const attachments = turn.request.attachments.filter(isInMatrix);
    const sources = [
      ...createSources({ turn, ownRoom, attachments, ...this.deps }),
      ...this.listChatFiles(turn),
      ...(turn.shared.get(FILE_SOURCES) ?? []),
    ];
    const files = await this.readFiles(turn, sources);
    for (const [i, attachment] of attachments.entries()) this.remember(turn, attachment, files[i]);
    return files;
  }

  /** The files of a message in a room. */
  listChatFiles(turn: TurnContext): readonly FileSource[] {
    return listChatFiles(turn, this.deps);
  }

  /** Reads an image of an earlier message, or remembers it. */
  async readAgain(
    turn: TurnContext,
    ownRoom: string | undefined,
    attachment: Attachment,
  ): Promise<ReadFile | undefined> {
    const known = this.images.get(toImageKey(turn, attachment));
    if (known) return known;
    const reading = { turn, ownRoom, attachments: [attachment], ...this.deps };
    const [file] = await this.readFiles(turn, createSources(reading));
    this.remember(turn, attachment, file);
    return file;
  }

  private remember(turn: TurnContext, attachment: Attachment, file: ReadFile | undefined): void {
    if (file && 'image' in file) this.images.set(toImageKey(turn, attachment), file);
  }

  /** Reads one file after the other; an error affects that file only. The end of the turn cancels downloads. */
  private async readFiles(turn: TurnContext, sources: readonly FileSource[]): Promise<ReadFile[]> {
    const [first] = sources;
    if (!first) return [];
    const reader = { user: turn.user.did, homeserver: first.server };
    try {
      if (this.deps.health.isDown(first.server)) throw new HomeserverDownError();
      return await this.slots.run(reader, turn.signal, () =>
        this.readAll({ turn, sources, reader }),
      );
    } catch (error) {
      turn.signal.throwIfAborted();
      return sources.map(({ name, type }) => ({ name, type, error: describeError(error, turn) }));
    }
  }

  private async readAll({ turn, sources, reader }: Reading): Promise<ReadFile[]> {
    const signal = AbortSignal.any([turn.signal, AbortSignal.timeout(MESSAGE_MS)]);
    const files: ReadFile[] = [];
    let left = MESSAGE_BYTES;
    let outage: HomeserverDownError | undefined;
    for (const source of sources) {
      const { name, type } = source;
      try {
        signal.throwIfAborted();
        // A homeserver that did not answer for one file is not asked for the next.
        if (outage) throw outage;
        const file = await this.readOne(source, { turn, reader, signal, left });
        left -= file.size;
        files.push({ name, type, ...file.content });
      } catch (error) {
        turn.signal.throwIfAborted();
        if (error instanceof HomeserverDownError) outage = error;
        files.push({ name, type, error: describeError(error, turn) });
      }
    }
    return files;
  }

  private async readOne(source: FileSource, { turn, reader, signal, left }: Place) {
    const maxBytes = Math.min(FILE_BYTES, left);
    if ((source.size ?? 0) > maxBytes || maxBytes <= 0) throw new Error(TOO_LARGE);
    const held = this.budget.open(turn.user.did);
    const hold = (bytes: number) => {
      if (held.resize(bytes) !== undefined) throw new Error(BUSY);
    };
    const release = () => held.release();
    let charged = 0;
    const reserve = (size: number) => {
      hold(size);
      this.charge(turn.user.did, size);
      charged += toMegabytes(size);
    };
    try {
      const bytes = await source.read({ maxBytes, signal, reserve });
      // A server that does not announce the size is charged for the largest file at first.
      const unread = charged - toMegabytes(bytes.length);
      if (unread > 0) this.rates.refund(turn.user.did, MEGABYTES_PER_MINUTE, unread);
      const content = await this.readContent(source.type, bytes, { reader, signal });
      hold('image' in content ? content.image.byteLength : 2 * content.text.length);
      if (turn.signal.aborted) release();
      else turn.signal.addEventListener('abort', release, { once: true });
      return { content, size: bytes.length };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Counts the bytes before they are read. */
  private charge(user: string, bytes: number): void {
    const cost = toMegabytes(bytes);
    const { allowed, resetSeconds } = this.rates.take(user, MEGABYTES_PER_MINUTE, cost);
    if (allowed) return;
    throw new Error(
      `${MEGABYTES_PER_MINUTE} MB of files a minute can be read; send it again in ${resetSeconds} seconds`,
    );
  }

  private async readContent(
    type: string,
    bytes: Uint8Array,
    { reader, signal }: Pick<Place, 'reader' | 'signal'>,
  ) {
    // Loaded with the first file.
    const { detectContent, readPdf } = await import('./file-content.js');
    const content = detectContent(type, bytes);
    switch (content.kind) {
      case 'text':
        return { text: truncateStart(content, bytes.length) };
      case 'pdf': {
        const read = () => readPdf(bytes, FILE_LENGTH, signal);
        const { text, length } = await this.pdfSlots.run(reader, signal, read);
        return { text: truncate(text, length - FILE_LENGTH) };
      }
      case 'image':
        return { image: bytes, type: content.type };
    }
  }
}

const toMegabytes = (bytes: number) => Math.max(1, Math.ceil(bytes / 1024 ** 2));

interface Reading {
  readonly turn: TurnContext;
  readonly sources: readonly FileSource[];
  readonly reader: { readonly user: string; readonly homeserver: string };
}

interface Place extends Omit<Reading, 'sources'> {
  readonly signal: AbortSignal;
  /** Bytes that the message may still have read. */
  readonly left: number;
}

interface MatrixFiles extends FileReaderDeps {
  readonly turn: TurnContext;
  readonly ownRoom: string | undefined;
  readonly attachments: readonly Attachment[];
}

/** The files of a message in Matrix. Reading stops at a homeserver that stays silent. */
function createSources({
  turn,
  ownRoom,
  attachments,
  health,
  config,
}: MatrixFiles): readonly FileSource[] {
  const { fetch } = health;
  const { homeServer = config.MATRIX_BASE_URL ?? '' } = turn.user.matrix ?? {};
  let finding: Promise<Homeserver> | undefined;
  const find = (signal: AbortSignal) => {
    finding ??= health.whileAlive(homeServer, signal, (alive) =>
      findUserHomeserver(turn.user, config, fetch, alive),
    );
    return finding;
  };
  return attachments.map((attachment) => ({
    name: attachment.filename,
    type: attachment.mimetype,
    size: attachment.size,
    server: toHost(homeServer),
    read: async ({ signal, ...limits }) => {
      const homeserver = await find(signal);
      return health.whileAlive(homeserver.baseUrl, signal, (alive) =>
        readBytes(attachment, { ...limits, turn, ownRoom, homeserver, fetch, signal: alive }),
      );
    },
  }));
}

async function readBytes(
  attachment: Attachment,
  place: FileReadOptions & Parameters<typeof locateFile>[1],
): Promise<Uint8Array> {
  const { mxcUri, encryption } = await locateFile(attachment, place);
  const homeserver = restrictToken(attachment, place.homeserver);
  const bytes = await downloadFile({ ...place, mxcUri, homeserver });
  return encryption ? decryptFile(bytes, encryption) : bytes;
}

/** The oracle's token is sent only for files of the user's own room, never for URIs that the user names. */
function restrictToken({ eventId }: Attachment, homeserver: Homeserver): Homeserver {
  if (homeserver.as === 'user' || eventId !== undefined) return homeserver;
  return { ...homeserver, token: undefined };
}

/** Copies the text: a slice would keep the original in memory. */
function truncate(text: string, left: number, unit = 'characters'): string {
  if (left <= 0) return text;
  const start = Buffer.from(text.slice(0, FILE_LENGTH)).toString();
  return `${start}\n[truncated: ${left} more ${unit}]`;
}

/** Only the beginning of a long file is decoded, so its characters are not counted. */
function truncateStart({ text, decodedBytes }: TextContent, bytes: number): string {
  if (decodedBytes === bytes) return truncate(text, text.length - FILE_LENGTH);
  const shown = Math.round(decodedBytes * Math.min(1, FILE_LENGTH / text.length));
  return truncate(text, bytes - shown, 'bytes');
}

function toImageKey({ user }: TurnContext, { eventId, mxcUri }: Attachment): string {
  return JSON.stringify([user.did, eventId ?? mxcUri]);
}

/** Error texts of homeservers have any length. */
const ERROR_LENGTH = 300;
const TOO_LARGE = 'it is too large: 25 MB a file and 50 MB a message can be read';
const BUSY = 'the host holds too many files right now; send it again in a minute';

/** The text for users; why a server cannot be reached goes to the log only, since it reveals the network. */
function describeError(error: unknown, { logger }: Pick<TurnContext, 'logger'>): string {
  if (!(error instanceof Error)) return 'it cannot be read';
  if (error.name === 'TimeoutError')
    return `its homeserver took more than ${MESSAGE_MS / 1000} s for the files of this message`;
  if (error.cause instanceof Error) logger.info({ err: error }, 'cannot read a file');
  if (error.name !== 'SafeFetchError') return error.message.slice(0, ERROR_LENGTH);
  if ('code' in error && error.code === 'too_large') return TOO_LARGE;
  logger.info({ err: error }, 'cannot reach a homeserver');
  return 'the homeserver cannot be reached';
}
