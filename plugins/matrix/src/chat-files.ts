import type { TurnContext } from '@sibyl/plugin-kit';
import type { ChatCall, ChatFile, FileChat, FileSource } from '@sibyl/plugin-kit/chat';
import type { MatrixChannel } from './chat-channel.js';
import { FILE_FIELD, MatrixFile, toTransactionId } from './chat-events.js';
import { type ChatThreads, CLIENT } from './chat-threads.js';
import { decryptFile, downloadFile } from './file-download.js';
import { type HomeserverHealth, toHost } from './health.js';
import { getOracleHomeserver, type MatrixConfig } from './homeserver.js';

/** The file of a message in a room, which the oracle's own token opens. */
export function listChatFiles(
  turn: TurnContext,
  { health, config }: { readonly health: HomeserverHealth; readonly config: MatrixConfig },
): readonly FileSource[] {
  const homeserver = getOracleHomeserver(config);
  const { data: file } = MatrixFile.safeParse(turn.state.metadata[FILE_FIELD]);
  // Metadata of other clients is what their users claim.
  if (turn.session.client !== CLIENT || !homeserver || !file) return [];
  const { url: mxcUri, encryption } = file;
  const source: FileSource = {
    name: file.name,
    type: file.mimetype,
    size: file.size,
    server: toHost(homeserver.baseUrl),
    read: ({ signal, ...limits }) =>
      health.whileAlive(homeserver.baseUrl, signal, async (alive) => {
        const place = { ...limits, mxcUri, homeserver, fetch: health.fetch, signal: alive };
        const bytes = await downloadFile(place);
        return encryption ? decryptFile(bytes, encryption) : bytes;
      }),
  };
  return [source];
}

interface ChatFilesDeps {
  readonly channel: MatrixChannel;
  readonly threads: ChatThreads;
}

/** The rooms, as files are sent to them. */
export const toFileChat = (deps: ChatFilesDeps): FileChat => ({
  name: 'Matrix',
  place: 'Matrix room',
  client: CLIENT,
  send: (file, call) => send(file, call, deps),
});

async function send(
  file: ChatFile,
  { user, session, toolCallId }: ChatCall,
  { channel, threads }: ChatFilesDeps,
): Promise<void> {
  const place = await threads.findPlace(user.did, session.id);
  if (!place) throw new Error('the room of this conversation is not known');
  const url = await channel.upload(file);
  const { filename, mediaType, data } = file;
  const [kind = ''] = mediaType.split('/');
  const msgtype = kind === 'image' || kind === 'audio' ? `m.${kind}` : 'm.file';
  const info = { mimetype: mediaType, size: data.length };
  const content = { msgtype, body: filename, filename, url, info };
  await channel.send(place, content, toTransactionId(session.requestId, toolCallId, filename));
}
