import { sharedKey } from '../context.js';

/** A file of a turn's message that a plugin can read, such as one from a chat. */
export interface FileSource {
  readonly name: string;
  /** The media type that its sender states. */
  readonly type: string;
  /** In bytes, if it is known. */
  readonly size?: number | undefined;
  /** The server that it is read from: one that hangs delays only its own files. */
  readonly server: string;
  read(options: FileReadOptions): Promise<Uint8Array>;
}

export interface FileReadOptions {
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  /** Call it with the most that the file can have, before any of it is read; throws to refuse it. */
  readonly reserve: (bytes: number) => void;
}

/** The files of a message that its attachments do not name. The plugin `matrix` reads them within its limits. */
export const FILE_SOURCES = sharedKey<readonly FileSource[]>('fileSources');
