import { ChangeSignal, type SafeFetch, type SetupContext } from '@sibyl/plugin-kit';
import type { FileReadOptions } from '@sibyl/plugin-kit/chat';
import { z } from 'zod';
import { MrkdwnStream } from './mrkdwn.js';
import { type Block, section, type View } from './views.js';

/** Slack rejects longer sections. */
export const MAX_LENGTH = 2900;

interface LiveReplyDeps {
  readonly channel: SlackChannel;
  readonly place: ReplyPlace;
  /** Slack messages of an earlier attempt, which are updated. */
  readonly replies: readonly string[];
  /** Called before the next message is posted. */
  readonly onPosted: (replies: readonly string[]) => Promise<void>;
  /** Minimum time between two updates. */
  readonly pauseMs: number;
  /** Below the last message while the answer is being written. */
  readonly buttons?: Block | undefined;
}

interface Shown {
  readonly ts: string;
  text: string | undefined;
  hasButtons: boolean;
}

/** An answer that streams to Slack: its messages are updated, and new ones posted when they are full. */
export class LiveReply {
  private readonly deps: LiveReplyDeps;
  private readonly shown: Shown[];
  private readonly converter = new MrkdwnStream(MAX_LENGTH);
  private wanted = '';
  private work: Promise<void> | undefined;
  private error: unknown;
  private isFinishing = false;
  private readonly finishing = new ChangeSignal();

  constructor(deps: LiveReplyDeps) {
    this.deps = deps;
    this.shown = deps.replies.map((ts) => ({ ts, text: undefined, hasButtons: false }));
  }

  /** Shows the text soon; of several in quick succession only the last one. */
  show(markdown: string): void {
    this.wanted = markdown;
    this.work ??= this.showLatest();
  }

  /** Shows the text now; resolves once it is posted. */
  async finish(markdown: string): Promise<void> {
    this.wanted = markdown;
    this.isFinishing = true;
    this.finishing.notify();
    await this.work;
    this.error = undefined;
    await this.sync(markdown, undefined);
  }

  private async showLatest(): Promise<void> {
    let shown: string | undefined;
    // `finish` shows the last text itself.
    while (shown !== this.wanted && !this.error && !this.isFinishing) {
      shown = this.wanted;
      await this.sync(shown, this.deps.buttons).catch((error) => {
        // `finish` shows the whole text again.
        this.error = error;
      });
      if (!this.isFinishing) await this.finishing.wait({ ms: this.deps.pauseMs });
    }
    this.work = undefined;
  }

  private async sync(markdown: string, buttons: Block | undefined): Promise<void> {
    const texts = this.converter.update(markdown);
    for (const [i, text] of texts.entries())
      await this.showOne(i, { text, buttons: i === texts.length - 1 ? buttons : undefined });
    // The final text may be shorter than what was shown.
    while (this.shown.length > texts.length) await this.dropLast();
  }

  private async showOne(index: number, post: Post): Promise<void> {
    const { channel, place, onPosted } = this.deps;
    const shown = this.shown[index];
    const hasButtons = post.buttons !== undefined;
    if (shown?.text === post.text && shown.hasButtons === hasButtons) return;
    if (shown && (await channel.update(place, shown.ts, post))) {
      Object.assign(shown, { text: post.text, hasButtons });
      return;
    }
    const ts = await channel.post(place, post);
    this.shown[index] = { ts, text: post.text, hasButtons };
    await onPosted(this.shown.map((one) => one.ts));
  }

  private async dropLast(): Promise<void> {
    const { channel, place } = this.deps;
    const last = this.shown.pop();
    if (last) await channel.remove(place, last.ts);
  }
}

const TIMEOUT_MS = 10_000;

/** The conversation that an answer belongs to. */
export interface ReplyPlace {
  readonly channel: string;
  readonly thread?: string | undefined;
}

/** A message of the bot. */
export interface Post {
  /** In mrkdwn. */
  readonly text: string;
  readonly buttons?: Block | undefined;
}

/** A file for a conversation. */
export interface Upload {
  readonly filename: string;
  readonly data: Uint8Array;
}

/** What the bot does in Slack. */
export interface SlackChannel {
  /** Returns the id of the new message. */
  post(place: ReplyPlace, post: Post): Promise<string>;
  /** False if the message was deleted. */
  update(place: ReplyPlace, ts: string, post: Post): Promise<boolean>;
  remove(place: ReplyPlace, ts: string): Promise<void>;
  /** Answers a command or a button, visible to its user only. */
  respond(url: string, body: object): Promise<void>;
  openView(triggerId: string, view: View): Promise<void>;
  upload(place: ReplyPlace, file: Upload): Promise<void>;
  /** The direct conversation with a user. */
  openDirect(user: string): Promise<string>;
  download(url: string, options: FileReadOptions): Promise<Uint8Array>;
}

interface SlackChannelOptions {
  readonly token: string;
  readonly url: string;
  readonly fetch: SetupContext['fetch'];
}

/** Connects to Slack's Web API, whose SDK respects rate limits and retries. */
export async function connectSlack(options: SlackChannelOptions): Promise<SlackChannel> {
  const { token, url, fetch } = options;
  const { LogLevel, WebClient, WebAPIPlatformError } = await loadSdk();
  const web = new WebClient(token, {
    slackApiUrl: url,
    fetch,
    timeout: TIMEOUT_MS,
    allowAbsoluteUrls: false,
    retryConfig: { retries: 3, minTimeout: 500, factor: 2 },
    // Errors are thrown; its logger would write to the console.
    logger: { ...silent, getLevel: () => LogLevel.ERROR },
  });
  const refuseUnlessDeleted = (error: unknown): false => {
    if (error instanceof WebAPIPlatformError && error.data.error === 'message_not_found')
      return false;
    throw error;
  };
  return {
    async post({ channel, thread }, { text, buttons }) {
      // By name, since the types of the methods list every kind of block that Slack knows.
      const posted = await web.apiCall('chat.postMessage', {
        ...{ channel, text, unfurl_links: false, unfurl_media: false },
        ...(thread && { thread_ts: thread }),
        ...(buttons && { blocks: toBlocks(text, buttons) }),
      });
      return Posted.parse(posted).ts;
    },
    async update({ channel }, ts, { text, buttons }) {
      const blocks = buttons ? toBlocks(text, buttons) : [];
      const updated = web.apiCall('chat.update', { channel, ts, text, blocks });
      return updated.then(() => true, refuseUnlessDeleted);
    },
    async remove({ channel }, ts) {
      await web.chat.delete({ channel, ts }).catch(refuseUnlessDeleted);
    },
    async openView(triggerId, view) {
      await web.apiCall('views.open', { trigger_id: triggerId, view });
    },
    async openDirect(user) {
      const { channel } = await web.conversations.open({ users: user });
      if (!channel?.id) throw new Error('Slack did not open a direct conversation');
      return channel.id;
    },
    async upload({ channel, thread }, { filename, data }) {
      const file = { filename, file: Buffer.from(data), channel_id: channel };
      await web.filesUploadV2(thread ? { ...file, thread_ts: thread } : file);
    },
    respond: (address, body) => respond(fetch, address, body),
    download: (address, limits) => download(address, limits, options),
  };
}

/** What Slack returns for a message: its id. */
const Posted = z.object({ ts: z.string() });

const toBlocks = (text: string, buttons: Block): Block[] => [section(text), buttons];

async function respond(fetch: SafeFetch, url: string, body: object): Promise<void> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    timeoutMs: TIMEOUT_MS,
  });
  await response.body?.cancel();
  if (!response.ok) throw new Error(`Slack answered ${response.status}`);
}

const DOWNLOAD_TIMEOUT_MS = 60_000;

/** Reads a file of Slack. The token is sent to Slack only. */
async function download(
  url: string,
  { maxBytes, signal, reserve }: FileReadOptions,
  { token, url: api, fetch }: SlackChannelOptions,
): Promise<Uint8Array> {
  const { host } = new URL(url);
  if (host !== new URL(api).host && !/^([\w-]+\.)*slack\.com$/.test(host))
    throw new Error('its address is not one of Slack');
  const headers = { authorization: `Bearer ${token}` };
  const limits = { maxBytes, signal, timeoutMs: DOWNLOAD_TIMEOUT_MS, redirects: 0 };
  const response = await fetch(url, { headers, ...limits });
  // Without the scope files:read, Slack sends the page to sign in.
  if (!response.ok || response.headers.get('content-type')?.startsWith('text/html')) {
    await response.body?.cancel();
    throw new Error('Slack does not permit to read it; the app needs the scope files:read');
  }
  reserve(Number(response.headers.get('content-length') ?? maxBytes));
  return new Uint8Array(await response.arrayBuffer());
}

/** The SDK is an optional dependency and loads only with this plugin. */
async function loadSdk() {
  try {
    return await import('@slack/web-api');
  } catch (cause) {
    throw new Error('The plugin slack needs the package @slack/web-api: install it', { cause });
  }
}

const silent = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  setLevel: () => {},
  setName: () => {},
};
