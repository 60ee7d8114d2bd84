import { defineTool, type Middleware, type Tool, type TurnContext } from '@sibyl/plugin-kit';
import type { FileSource } from '@sibyl/plugin-kit/chat';
import { z } from 'zod';
import type { MatrixChannel } from './chat-channel.js';
import { FILE_FIELD, MatrixFile, toTransactionId } from './chat-events.js';
import { type ChatThreads, CLIENT } from './chat-threads.js';
import { decryptFile, downloadFile } from './file-download.js';
import { type HomeserverHealth, toHost } from './health.js';
import { getOracleHomeserver, type MatrixConfig } from './homeserver.js';

/** Metadata of other clients is what their users claim. */
const isFromRoom = ({ session }: TurnContext) => session.client === CLIENT;

/** The file of a message in a room, which the oracle's own token opens. */
export function listChatFiles(
  turn: TurnContext,
  { health, config }: { readonly health: HomeserverHealth; readonly config: MatrixConfig },
): readonly FileSource[] {
  const homeserver = getOracleHomeserver(config);
  const { data: file } = MatrixFile.safeParse(turn.state.metadata[FILE_FIELD]);
  if (!isFromRoom(turn) || !homeserver || !file) return [];
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

/** Characters of a file that the agent writes. */
const MAX_CONTENT = 200_000;

/** The tool that sends a file to the thread, for turns in rooms. */
export function listChatTools(turn: TurnContext, deps: ChatFilesDeps): readonly Tool[] {
  if (!isFromRoom(turn)) return [];
  return [
    defineTool({
      name: 'send_file',
      description:
        'Sends the user a text file in this Matrix room, such as a table as CSV, a long text or code. Use it when the user asks for a file.',
      inputSchema: z.object({
        filename: z
          .string()
          .regex(/^[^/\\]{1,100}$/)
          .describe('With its extension, such as plots.csv'),
        content: z.string().min(1).max(MAX_CONTENT),
      }),
      visibility: 'always',
      run: async ({ filename, content }, call) => {
        const file = { filename, mediaType: 'text/plain', data: Buffer.from(content) };
        await send(file, call, deps);
        return { sent: filename };
      },
    }),
  ];
}

const Media = z.object({
  mediaType: z.string().regex(/^(image|audio)\/[\w.+-]+$/),
  data: z.instanceof(Uint8Array),
});
/** Files of one result that are sent. */
const MAX_MEDIA = 5;

/** Sends images and audio that tools return to the thread. */
export const sendChatMedia = (deps: ChatFilesDeps): Middleware => ({
  name: 'matrix-media',
  // Without it, the model still has the result.
  onFailure: 'skip',
  wrapTool: async (call, next, turn) => {
    const result = await next(call);
    if (!isFromRoom(turn)) return result;
    for (const [i, { mediaType, data }] of findMedia(result).entries()) {
      const filename = `${call.name}-${i + 1}.${mediaType.split('/')[1]}`;
      await send({ filename, mediaType, data }, turn, deps).catch((err) =>
        turn.logger.warn({ err, tool: call.name }, 'cannot send a file to Matrix'),
      );
    }
    return result;
  },
});

/** Files in a result, alone or in a list or an object. */
export function findMedia(result: unknown): z.infer<typeof Media>[] {
  const parts =
    typeof result === 'object' && result !== null ? [result, ...Object.values(result).flat()] : [];
  const found: z.infer<typeof Media>[] = [];
  for (const part of parts) {
    if (found.length === MAX_MEDIA) break;
    // A result may have many thousands of parts: to parse each of them takes long.
    const { data } = hasBytes(part) ? Media.safeParse(part) : {};
    if (data) found.push(data);
  }
  return found;
}

const hasBytes = (part: unknown): boolean =>
  typeof part === 'object' && part !== null && 'data' in part && part.data instanceof Uint8Array;

async function send(
  file: Parameters<MatrixChannel['upload']>[0],
  { user, session, toolCallId }: Pick<TurnContext, 'user' | 'session' | 'toolCallId'>,
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
