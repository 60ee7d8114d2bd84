import {
  defineTool,
  type Middleware,
  type SharedState,
  type Tool,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { FILE_SOURCES, type FileSource } from '@sibyl/plugin-kit/chat';
import { z } from 'zod';
import { SlackFile } from './delivery.js';
import type { SlackChannel, Upload } from './live-reply.js';
import type { Threads } from './threads.js';

/** The field of a turn's metadata that lists the files of its message. */
export const FILES_FIELD = 'slackFiles';
const Files = z.array(SlackFile).catch([]);

interface FilesDeps {
  readonly channel: SlackChannel;
  readonly threads: Threads;
}

/** Metadata of other clients is what their users claim. */
const isFromSlack = ({ session }: TurnContext) => session.client === 'slack';

/** Shares the files of messages in Slack with the plugin that reads files. */
export const shareFiles = ({ channel }: Pick<FilesDeps, 'channel'>): SharedState =>
  FILE_SOURCES.sharePerTurn((turn) => {
    if (!isFromSlack(turn)) return [];
    return Files.parse(turn.state.metadata[FILES_FIELD]).map((file) => toSource(file, channel));
  });

const toSource = (file: SlackFile, channel: SlackChannel): FileSource => ({
  name: file.name,
  type: file.mimetype,
  size: file.size,
  server: new URL(file.url_private_download).host,
  read: (options) => channel.download(file.url_private_download, options),
});

/** Characters of a file that the agent writes. */
const MAX_CONTENT = 200_000;

/** The tool that sends a file to the conversation, for turns in Slack. */
export function listFileTools(turn: TurnContext, deps: FilesDeps): readonly Tool[] {
  if (!isFromSlack(turn)) return [];
  return [
    defineTool({
      name: 'send_file',
      description:
        'Sends the user a text file in this Slack conversation, such as a table as CSV, a long text or code. Use it when the user asks for a file.',
      inputSchema: z.object({
        filename: z
          .string()
          .regex(/^[^/\\]{1,100}$/)
          .describe('With its extension, such as plots.csv'),
        content: z.string().min(1).max(MAX_CONTENT),
      }),
      visibility: 'always',
      run: async ({ filename, content }, { user, session }) => {
        const file = { filename, data: Buffer.from(content) };
        await send(file, { owner: user.did, sessionId: session.id }, deps);
        return { sent: filename };
      },
    }),
  ];
}

const Media = z.object({
  mediaType: z.string().regex(/^(image|audio)\/[\w.+-]+$/),
  data: z.instanceof(Uint8Array),
});

/** Sends images and audio that tools return to the conversation. */
export const sendMedia = (deps: FilesDeps): Middleware => ({
  name: 'slack-media',
  // Without it, the model still has the result.
  onFailure: 'skip',
  wrapTool: async (call, next, turn) => {
    const result = await next(call);
    if (!isFromSlack(turn)) return result;
    const place = { owner: turn.user.did, sessionId: turn.session.id };
    for (const [i, { mediaType, data }] of findMedia(result).entries()) {
      const filename = `${call.name}-${i + 1}.${mediaType.split('/')[1]}`;
      await send({ filename, data }, place, deps).catch((err) =>
        turn.logger.warn({ err, tool: call.name }, 'cannot send a file to Slack'),
      );
    }
    return result;
  },
});

/** Files of one result that are sent. */
const MAX_MEDIA = 5;

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

interface SessionPlace {
  readonly owner: string;
  readonly sessionId: string;
}

async function send(
  file: Upload,
  { owner, sessionId }: SessionPlace,
  { threads, channel }: FilesDeps,
): Promise<void> {
  const place = (await threads.findPlace(owner, sessionId)) ?? {
    // The answer to a command is private, so its files are too.
    channel: await channel.openDirect(owner.split(':').at(-1) ?? ''),
  };
  await channel.upload(place, file);
}
