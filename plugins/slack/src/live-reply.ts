import type { FetchFunction } from '@slack/web-api';
import { splitMessage, toMrkdwn } from './mrkdwn.js';

/** Slack shows longer messages cut. */
const MAX_LENGTH = 3500;

interface LiveReplyParts {
  readonly channel: SlackChannel;
  readonly place: ReplyPlace;
  /** Messages that hold the answer already, of an attempt before this one. */
  readonly replies: readonly string[];
  /** Called before the next message is posted. */
  readonly onPosted: (replies: readonly string[]) => Promise<void>;
  /** Least time between two changes. */
  readonly pauseMs: number;
}

interface Shown {
  readonly ts: string;
  text: string | undefined;
}

/** An answer that grows in Slack as it is written: its messages are changed, and more posted when they are full. */
export class LiveReply {
  readonly #parts: LiveReplyParts;
  readonly #shown: Shown[];
  #wanted = '';
  #work: Promise<void> | undefined;
  #fault: unknown;
  #hurry = Promise.withResolvers<void>();

  constructor(parts: LiveReplyParts) {
    this.#parts = parts;
    this.#shown = parts.replies.map((ts) => ({ ts, text: undefined }));
  }

  /** Shows the text soon; of several in quick succession only the last. */
  show(markdown: string): void {
    this.#wanted = markdown;
    this.#work ??= this.#showLatest();
  }

  /** Shows the text now, and settles when it is there. */
  async finish(markdown: string): Promise<void> {
    this.#wanted = markdown;
    this.#hurry.resolve();
    await this.#work;
    this.#fault = undefined;
    await this.#sync(markdown);
  }

  async #showLatest(): Promise<void> {
    for (let shown: string | undefined; shown !== this.#wanted && !this.#fault; ) {
      shown = this.#wanted;
      await this.#sync(shown).catch((fault) => {
        // What matters is shown at the end; until then nothing is lost.
        this.#fault = fault;
      });
      await this.#pause();
    }
    this.#work = undefined;
  }

  async #pause(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, this.#parts.pauseMs);
    await Promise.race([promise, this.#hurry.promise]);
    clearTimeout(timer);
  }

  async #sync(markdown: string): Promise<void> {
    const texts = splitMessage(toMrkdwn(markdown), MAX_LENGTH);
    for (const [i, text] of texts.entries()) await this.#show(i, text);
    // What is stored may be shorter than what was shown.
    while (this.#shown.length > texts.length) await this.#dropLast();
  }

  async #show(index: number, text: string): Promise<void> {
    const { channel, place, onPosted } = this.#parts;
    const shown = this.#shown[index];
    if (shown?.text === text) return;
    if (shown) {
      await channel.update(place, shown.ts, text);
      shown.text = text;
      return;
    }
    const ts = await channel.post(place, text);
    this.#shown.push({ ts, text });
    await onPosted(this.#shown.map((one) => one.ts));
  }

  async #dropLast(): Promise<void> {
    const { channel, place } = this.#parts;
    const last = this.#shown.pop();
    if (last) await channel.remove(place, last.ts);
  }
}

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
