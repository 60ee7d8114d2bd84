import { createDecipheriv, createHash } from 'node:crypto';
import type { PluginContext, TurnContext } from '@sibyl/plugin-kit';
import type { Attachment } from '@sibyl/protocol';
import { z } from 'zod';
import {
  authorization,
  encodeSegment,
  fetchWithinLimits,
  type Homeserver,
  MatrixError,
  requestMatrix,
} from './homeserver.js';

const TIMEOUT_MS = 60_000;
/** Neither part is `.` or `..`, which would lead to another path of the homeserver. */
const MXC = /^mxc:\/\/(?!\.{1,2}\/)([^/\s]+)\/(?!\.{1,2}$)([^/\s?#]+)$/;

interface Download {
  readonly mxcUri: string;
  readonly homeserver: Homeserver;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly fetch: PluginContext['fetch'];
  /** Called with the most the body can have, before any of it is read; throws to refuse it. */
  readonly reserve: (bytes: number) => void;
}

/** Reads a file's bytes, by the authenticated endpoint or, on servers that lack it, the older one. */
export async function downloadFile(download: Download): Promise<Uint8Array> {
  const [, server, media] = MXC.exec(download.mxcUri) ?? [];
  if (!server || !media) throw new MatrixError(0, 'its address is not an mxc:// one');
  const file = `${encodeSegment(server)}/${encodeSegment(media)}`;
  const response = await get(`/_matrix/client/v1/media/download/${file}`, download);
  if (response.status !== 404) return readBytes(response, download);
  await response.body?.cancel();
  return readBytes(await get(`/_matrix/media/v3/download/${file}`, download), download);
}

function get(path: string, { homeserver, maxBytes, signal, fetch }: Download): Promise<Response> {
  return fetchWithinLimits(fetch, `${homeserver.baseUrl}${path}`, {
    headers: authorization(homeserver),
    maxBytes,
    timeoutMs: TIMEOUT_MS,
    signal,
  });
}

async function readBytes(response: Response, { maxBytes, reserve }: Download): Promise<Uint8Array> {
  try {
    if (!response.ok)
      throw new MatrixError(response.status, `the homeserver answered ${response.status}`);
    const announced = response.headers.get('content-length');
    reserve(announced === null ? maxBytes : Math.max(0, Number(announced)));
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    await response.body?.cancel().catch(() => undefined);
    throw error;
  }
}

/** Where a file's bytes are, and how to read them. */
export interface FileLocation {
  readonly mxcUri: string;
  readonly encryption: EncryptedFile | undefined;
}

const RoomEvent = z.object({
  type: z.string().optional(),
  content: z.object({ url: z.unknown().optional(), file: z.unknown().optional() }).optional(),
});

interface Place {
  readonly homeserver: Homeserver;
  readonly turn: TurnContext;
  readonly fetch: PluginContext['fetch'];
  /** The user's Matrix room with the oracle, if there is one. */
  readonly ownRoom: string | undefined;
  readonly signal: AbortSignal;
}

/** Finds the file of an attachment; with both an event and a URI the event wins. */
export async function locateFile(attachment: Attachment, place: Place): Promise<FileLocation> {
  const { eventId, mxcUri } = attachment;
  if (eventId === undefined) return { mxcUri: mxcUri ?? '', encryption: undefined };
  const { homeserver, fetch, signal } = place;
  const path = `/rooms/${encodeSegment(findRoom(place))}/event/${encodeSegment(eventId)}`;
  const { type, content = {} } = await requestMatrix(
    homeserver,
    { path, signal, reply: RoomEvent },
    fetch,
  );
  if (type === 'm.room.encrypted') throw new Error('its message is end-to-end encrypted');
  if (content.file !== undefined) {
    const encryption = EncryptedFile.parse(content.file);
    return { mxcUri: encryption.url, encryption };
  }
  if (typeof content.url !== 'string') throw new Error('its message holds no file');
  return { mxcUri: content.url, encryption: undefined };
}

/** With the oracle's token only the user's own room may be read: others are none of their business. */
function findRoom({ homeserver, turn, ownRoom }: Place): string {
  const { editorRoomId } = turn.state;
  const named = homeserver.as === 'user' ? editorRoomId : undefined;
  const room = named ?? ownRoom;
  if (!room) throw new Error('the room of its message is not known; send metadata.editorRoomId');
  return room;
}

/** What an event says of an encrypted file (Matrix, EncryptedFile v2). */
export const EncryptedFile = z.object({
  url: z.string(),
  key: z.object({ k: z.string(), alg: z.literal('A256CTR') }),
  iv: z.string(),
  hashes: z.object({ sha256: z.string() }),
});
export type EncryptedFile = z.infer<typeof EncryptedFile>;

/** Decrypts a file whose bytes are those the event speaks of; throws otherwise. */
export function decryptFile(bytes: Uint8Array, { key, iv, hashes }: EncryptedFile): Uint8Array {
  const hash = createHash('sha256').update(bytes).digest();
  if (!hash.equals(Buffer.from(hashes.sha256, 'base64'))) {
    throw new Error('its hash is not the one in the event');
  }
  const secret = Buffer.from(key.k, 'base64url');
  const counter = Buffer.from(iv, 'base64');
  if (secret.length !== 32 || counter.length !== 16) throw new Error('its key is not valid');
  const decipher = createDecipheriv('aes-256-ctr', secret, counter);
  return Buffer.concat([decipher.update(bytes), decipher.final()]);
}
