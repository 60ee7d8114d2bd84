import type { FetchFunction } from '@slack/web-api';

const TIMEOUT_MS = 10_000;

/** Where an answer goes. */
export interface ReplyPlace {
  readonly channel: string;
  readonly thread?: string | undefined;
}

/** Posts, changes and removes messages of the bot. */
export interface SlackChannel {
  /** Returns what names the new message. */
  post(place: ReplyPlace, text: string): Promise<string>;
  update(place: ReplyPlace, ts: string, text: string): Promise<void>;
  remove(place: ReplyPlace, ts: string): Promise<void>;
}

interface SlackChannelOptions {
  readonly token: string;
  readonly url: string;
  readonly fetch: FetchFunction;
}

/** Slack's Web API. It waits by itself where Slack asks it to, and repeats what failed on the way. */
export async function connectSlack(options: SlackChannelOptions): Promise<SlackChannel> {
  const { token, url, fetch } = options;
  // Loaded where it is used: a host without Slack starts without it.
  const { LogLevel, WebClient } = await import('@slack/web-api');
  const web = new WebClient(token, {
    slackApiUrl: url,
    fetch,
    timeout: TIMEOUT_MS,
    allowAbsoluteUrls: false,
    retryConfig: { retries: 3, minTimeout: 500, factor: 2 },
    // What fails is thrown; its own logger would write to the console.
    logger: { ...silent, getLevel: () => LogLevel.ERROR },
  });
  return {
    async post({ channel, thread }, text) {
      const plain = { channel, text, unfurl_links: false, unfurl_media: false };
      const { ts } = await web.chat.postMessage(thread ? { ...plain, thread_ts: thread } : plain);
      if (!ts) throw new Error('Slack did not name the message it posted');
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

const silent = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  setLevel: () => {},
  setName: () => {},
};
