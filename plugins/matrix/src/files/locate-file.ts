import type { PluginContext, TurnContext } from '@sibyl/plugin-kit';
import type { Attachment } from '@sibyl/protocol';
import { askMatrix, type Homeserver, segment } from '../homeserver.js';
import { EncryptedFile } from './encrypted-file.js';

/** Where a file's bytes are, and how to read them. */
export interface FileLocation {
  readonly mxcUri: string;
  readonly encryption: EncryptedFile | undefined;
}

interface RoomEvent {
  readonly type?: string;
  readonly content?: { readonly url?: unknown; readonly file?: unknown };
}

interface Place {
  readonly homeserver: Homeserver;
  readonly turn: TurnContext;
  readonly fetch: PluginContext['fetch'];
  /** The user's Matrix room with the oracle, if there is one. */
  readonly ownRoom: string | undefined;
  readonly signal: AbortSignal;
}

/** Finds the file of an attachment; with both an event and a URI the event wins (contract B3). */
export async function locateFile(attachment: Attachment, place: Place): Promise<FileLocation> {
  const { eventId, mxcUri } = attachment;
  if (eventId === undefined) return { mxcUri: mxcUri ?? '', encryption: undefined };
  const { homeserver, fetch, signal } = place;
  const path = `/rooms/${segment(roomOf(place))}/event/${segment(eventId)}`;
  const { type, content = {} } = await askMatrix<RoomEvent>(homeserver, { path, signal }, fetch);
  if (type === 'm.room.encrypted') throw new Error('its message is end-to-end encrypted');
  if (content.file !== undefined) {
    const encryption = EncryptedFile.parse(content.file);
    return { mxcUri: encryption.url, encryption };
  }
  if (typeof content.url !== 'string') throw new Error('its message holds no file');
  return { mxcUri: content.url, encryption: undefined };
}

/** With the oracle's token only the user's own room may be read: others are none of their business. */
function roomOf({ homeserver, turn, ownRoom }: Place): string {
  const { editorRoomId } = turn.state;
  const named = homeserver.as === 'user' ? editorRoomId : undefined;
  const room = named ?? ownRoom;
  if (!room) throw new Error('the room of its message is not known; send metadata.editorRoomId');
  return room;
}
