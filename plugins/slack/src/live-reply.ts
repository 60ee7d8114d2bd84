import { type SetupContext, settlesWithin } from '@sibyl/plugin-kit';
import { splitMessage, toMrkdwn } from './mrkdwn.js';

/** Slack truncates longer messages. */
const MAX_LENGTH = 3500;

interface LiveReplyDeps {
  readonly channel: SlackChannel;
  readonly place: ReplyPlace;
  /** Slack messages of an earlier attempt, which are updated. */
  readonly replies: readonly string[];
  /** Called before the next message is posted. */
  readonly onPosted: (replies: readonly string[]) => Promise<void>;
  /** Minimum time between two updates. */
  readonly pauseMs: number;
}

interface Shown {
  readonly ts: string;
  text: string | undefined;
}

/** An answer that streams to Slack: its messages are updated, and new ones posted when they are full. */
export class LiveReply {
  private readonly deps: LiveReplyDeps;
  private readonly shown: Shown[];
  private wanted = '';
  private work: Promise<void> | undefined;
  private error: unknown;
  private finishing = Promise.withResolvers<void>();

  constructor(deps: LiveReplyDeps) {
    this.deps = deps;
    this.shown = deps.replies.map((ts) => ({ ts, text: undefined }));
  }

  /** Shows the text soon; of several in quick succession only the last one. */
  show(markdown: string): void {
    this.wanted = markdown;
    this.work ??= this.showLatest();
  }

  /** Shows the text now; resolves once it is posted. */
  async finish(markdown: string): Promise<void> {
    this.wanted = markdown;
    this.finishing.resolve();
    await this.work;
    this.error = undefined;
    await this.sync(markdown);
  }

  private async showLatest(): Promise<void> {
    for (let shown: string | undefined; shown !== this.wanted && !this.error; ) {
      shown = this.wanted;
      await this.sync(shown).catch((error) => {
        // `finish` shows the whole text again.
        this.error = error;
      });
      await settlesWithin(this.deps.pauseMs, this.finishing.promise);
    }
    this.work = undefined;
  }

  private async sync(markdown: string): Promise<void> {
    const texts = splitMessage(toMrkdwn(markdown), MAX_LENGTH);
    for (const [i, text] of texts.entries()) await this.showOne(i, text);
    // The final text may be shorter than what was shown.
    while (this.shown.length > texts.length) await this.dropLast();
  }

  private async showOne(index: number, text: string): Promise<void> {
    const { channel, place, onPosted } = this.deps;
    const shown = this.shown[index];
    if (shown?.text === text) return;
    if (shown) {
      await channel.update(place, shown.ts, text);
      shown.text = text;
      return;
    }
    const ts = await channel.post(place, text);
    this.shown.push({ ts, text });
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

/** Posts, updates and removes messages of the bot. */
export interface SlackChannel {
  /** Returns the id of the new message. */
  post(place: ReplyPlace, text: string): Promise<string>;
  update(place: ReplyPlace, ts: string, text: string): Promise<void>;
  remove(place: ReplyPlace, ts: string): Promise<void>;
}

interface SlackChannelOptions {
  readonly token: string;
  readonly url: string;
  readonly fetch: SetupContext['fetch'];
}

/** Connects to Slack's Web API, whose SDK respects rate limits and retries. */
export async function connectSlack(options: SlackChannelOptions): Promise<SlackChannel> {
  const { token, url, fetch } = options;
  const { LogLevel, WebClient } = await loadSdk();
  const web = new WebClient(token, {
    slackApiUrl: url,
    fetch,
    timeout: TIMEOUT_MS,
    allowAbsoluteUrls: false,
    retryConfig: { retries: 3, minTimeout: 500, factor: 2 },
    // Errors are thrown; its logger would write to the console.
    logger: { ...silent, getLevel: () => LogLevel.ERROR },
  });
  return {
    async post({ channel, thread }, text) {
      const plain = { channel, text, unfurl_links: false, unfurl_media: false };
      const { ts } = await web.chat.postMessage(thread ? { ...plain, thread_ts: thread } : plain);
      if (!ts) throw new Error('Slack did not return the id of the message');
      return ts;
    },
    async update({ channel }, ts, text) {
      await web.chat.update({ channel, ts, text });
    },
    async remove({ channel }, ts) {
      await web.chat.delete({ channel, ts });
    },
  };
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
