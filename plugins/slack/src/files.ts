import type { SharedState } from '@sibyl/plugin-kit';
import {
  type ChatCall,
  type ChatFile,
  FILE_SOURCES,
  type FileChat,
  type FileSource,
} from '@sibyl/plugin-kit/chat';
import { z } from 'zod';
import { SlackFile } from './delivery.js';
import type { SlackChannel } from './live-reply.js';
import type { Threads } from './threads.js';

/** The field of a turn's metadata that lists the files of its message. */
export const FILES_FIELD = 'slackFiles';
const Files = z.array(SlackFile).catch([]);
/** Where turns in Slack come from. */
export const CLIENT = 'slack';

interface FilesDeps {
  readonly channel: SlackChannel;
  readonly threads: Threads;
}

/** Shares the files of messages in Slack with the plugin that reads files. */
export const shareFiles = ({ channel }: Pick<FilesDeps, 'channel'>): SharedState =>
  FILE_SOURCES.sharePerTurn((turn) => {
    // Metadata of other clients is what their users claim.
    if (turn.session.client !== CLIENT) return [];
    return Files.parse(turn.state.metadata[FILES_FIELD]).map((file) => toSource(file, channel));
  });

const toSource = (file: SlackFile, channel: SlackChannel): FileSource => ({
  name: file.name,
  type: file.mimetype,
  size: file.size,
  server: new URL(file.url_private_download).host,
  read: (options) => channel.download(file.url_private_download, options),
});

/** The conversations, as files are sent to them. */
export const toFileChat = (deps: FilesDeps): FileChat => ({
  name: 'Slack',
  place: 'Slack conversation',
  client: CLIENT,
  send: (file, call) => send(file, call, deps),
});

async function send(
  { filename, data }: ChatFile,
  { user, session }: ChatCall,
  { threads, channel }: FilesDeps,
): Promise<void> {
  const place = (await threads.findPlace(user.did, session.id)) ?? {
    // The answer to a command is private, so its files are too.
    channel: await channel.openDirect(user.did.split(':').at(-1) ?? ''),
  };
  await channel.upload(place, { filename, data });
}
