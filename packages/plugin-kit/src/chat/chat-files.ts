import { z } from 'zod';
import type { TurnContext } from '../context.js';
import type { Middleware } from '../middleware.js';
import { defineTool, type Tool } from '../tool.js';

/** A chat that files are sent to. */
export interface FileChat {
  /** As its users know it, such as `Slack`. */
  readonly name: string;
  /** Where its users are, for the model, such as `Slack conversation`. */
  readonly place: string;
  /** The `client` of turns that begin in the chat. */
  readonly client: string;
  /** Sends a file to the conversation of a turn. */
  send(file: ChatFile, turn: ChatCall): Promise<void>;
}

export interface ChatFile {
  readonly filename: string;
  readonly mediaType: string;
  readonly data: Uint8Array;
}

export type ChatCall = Pick<TurnContext, 'user' | 'session' | 'toolCallId'>;

/** Characters of a file that the agent writes. */
const MAX_CONTENT = 200_000;

/** The tool that sends a file to the conversation, for turns in the chat. */
export function listFileTools(turn: TurnContext, chat: FileChat): readonly Tool[] {
  if (!isFrom(chat, turn)) return [];
  return [
    defineTool({
      name: 'send_file',
      description: `Sends the user a text file in this ${chat.place}, such as a table as CSV, a long text or code. Use it when the user asks for a file.`,
      inputSchema: z.object({
        filename: z
          .string()
          .regex(/^[^/\\]{1,100}$/)
          .describe('With its extension, such as plots.csv'),
        content: z.string().min(1).max(MAX_CONTENT),
      }),
      visibility: 'always',
      run: async ({ filename, content }, call) => {
        await chat.send({ filename, mediaType: 'text/plain', data: Buffer.from(content) }, call);
        return { sent: filename };
      },
    }),
  ];
}

/** Metadata of other clients is what their users claim. */
const isFrom = ({ client }: FileChat, { session }: TurnContext) => session.client === client;

/** Sends images and audio that tools return to the conversation. */
export const sendMedia = (chat: FileChat): Middleware => ({
  name: `${chat.client}-media`,
  // Without it, the model still has the result.
  onFailure: 'skip',
  wrapTool: async (call, next, turn) => {
    const result = await next(call);
    if (!isFrom(chat, turn)) return result;
    for (const [i, { mediaType, data }] of findMedia(result).entries()) {
      const filename = `${call.name}-${i + 1}.${mediaType.split('/')[1]}`;
      await chat
        .send({ filename, mediaType, data }, turn)
        .catch((err) =>
          turn.logger.warn({ err, tool: call.name }, `cannot send a file to ${chat.name}`),
        );
    }
    return result;
  },
});

const Media = z.object({
  mediaType: z.string().regex(/^(image|audio)\/[\w.+-]+$/),
  data: z.instanceof(Uint8Array),
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
