import type { PluginContext, TurnContext } from '@sibyl/plugin-kit';
import type { Attachment } from '@sibyl/protocol';
import type { MatrixConfig } from '../config.js';
import { type Homeserver, userHomeserver } from '../homeserver.js';
import { downloadFile } from './download-file.js';
import { decryptFile } from './encrypted-file.js';
import { fileKind } from './file-kind.js';
import { locateFile } from './locate-file.js';
import { pdfText } from './pdf-text.js';

/** Security §4. */
const FILE_BYTES = 25 * 1024 ** 2;
const MESSAGE_BYTES = 50 * 1024 ** 2;

/** What became of an attachment. */
export type ReadFile =
  | { readonly name: string; readonly type: string; readonly text: string }
  | { readonly name: string; readonly type: string; readonly image: Uint8Array }
  | { readonly name: string; readonly type: string; readonly fault: string };

interface Reading {
  readonly turn: TurnContext<MatrixConfig>;
  readonly fetch: PluginContext['fetch'];
  readonly ownRoom: string | undefined;
}

/** Reads the files of a message, one after the other so that their sum stays bounded; a failing one costs only itself. */
export async function readFiles({ turn, fetch, ownRoom }: Reading): Promise<ReadFile[]> {
  const { attachments } = turn.request;
  const files: ReadFile[] = [];
  let left = MESSAGE_BYTES;
  let homeserver: Homeserver | undefined;
  for (const attachment of attachments) {
    const { filename: name, mimetype: type } = attachment;
    try {
      homeserver ??= await userHomeserver(turn.user, turn.config, fetch);
      const bytes = await bytesOf(attachment, { turn, fetch, ownRoom, homeserver, left });
      left -= bytes.length;
      files.push({ name, type, ...(await contentOf(type, bytes, turn.signal)) });
    } catch (error) {
      turn.signal.throwIfAborted();
      files.push({ name, type, fault: faultOf(error, turn) });
    }
  }
  return files;
}

type Place = Reading & { readonly homeserver: Homeserver; readonly left: number };

async function bytesOf(attachment: Attachment, place: Place): Promise<Uint8Array> {
  const { turn, left, homeserver, fetch } = place;
  const maxBytes = Math.min(FILE_BYTES, left);
  if ((attachment.size ?? 0) > maxBytes || maxBytes <= 0) throw new Error(TOO_LARGE);
  const { mxcUri, encryption } = await locateFile(attachment, place);
  const { signal } = turn;
  const access = { homeserver: readableWith(attachment, homeserver), signal, fetch };
  const bytes = await downloadFile({ mxcUri, maxBytes, ...access });
  return encryption ? decryptFile(bytes, encryption) : bytes;
}

/** The oracle's token opens what was sent in the user's own room, never an address that the user just names. */
function readableWith({ eventId }: Attachment, homeserver: Homeserver): Homeserver {
  if (homeserver.as === 'user' || eventId !== undefined) return homeserver;
  return { ...homeserver, token: undefined };
}

async function contentOf(type: string, bytes: Uint8Array, signal: AbortSignal) {
  switch (fileKind(type, bytes)) {
    case 'text':
      return { text: new TextDecoder().decode(bytes) };
    case 'pdf':
      return { text: await pdfText(bytes, signal) };
    case 'image':
      return { image: bytes };
  }
}

/** What a homeserver says of itself may be of any length. */
const FAULT_LENGTH = 300;
const TOO_LARGE = 'it is too large: 25 MB a file and 50 MB a message can be read';

/** Why a server was not reached is for the operator: it could tell what is inside of the network. */
function faultOf(error: unknown, { logger }: Pick<TurnContext, 'logger'>): string {
  if (!(error instanceof Error)) return 'it cannot be read';
  if (error.name !== 'SafeFetchError') return error.message.slice(0, FAULT_LENGTH);
  if ('code' in error && error.code === 'too_large') return TOO_LARGE;
  logger.info({ err: error }, 'a homeserver was not reached');
  return 'the homeserver cannot be reached';
}
