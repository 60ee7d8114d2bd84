import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

/** A message in a channel. */
interface SlackPost {
  readonly ts: string;
  readonly channel: string;
  readonly thread: string | undefined;
  text: string;
  /** All versions of its text, oldest first. */
  readonly versions: string[];
}

/** The part of Slack that the plugin uses: accepts and changes posts, and delivers signed events. */
export class SlackServer {
  readonly posts: SlackPost[] = [];
  readonly tokens = new Set<string>();
  /** How many of the next calls are answered with this status. */
  readonly failing = { status: 500, calls: 0 };
  private readonly server = createServer(
    (request, response) => void this.answer(request, response),
  );

  async start(): Promise<this> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    return this;
  }

  /** The variables of a host that uses it. */
  get env() {
    const { port } = this.server.address() as AddressInfo;
    return {
      SLACK_SIGNING_SECRET: SECRET,
      SLACK_BOT_TOKEN: 'xoxb-test',
      SLACK_API_URL: `http://127.0.0.1:${port}/api`,
      OUTGOING_ALLOW: '127.0.0.1',
    };
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const form = new URLSearchParams(await text(request));
    this.tokens.add(String(request.headers.authorization));
    if (this.failing.calls > 0) {
      this.failing.calls -= 1;
      return void response.writeHead(this.failing.status, { 'retry-after': '1' }).end('{}');
    }
    const method = request.url?.split('/').at(-1) ?? '';
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(this.call(method, Object.fromEntries(form))));
  }

  private call(method: string, form: Record<string, string | undefined>): object {
    const { channel = '', text: said = '', ts = '', thread_ts: thread } = form;
    const post = this.posts.find((one) => one.ts === ts && one.channel === channel);
    switch (method) {
      case 'chat.postMessage': {
        const posted = `${Date.now()}.${String(this.posts.length).padStart(6, '0')}`;
        this.posts.push({ ts: posted, channel, thread, text: said, versions: [said] });
        return { ok: true, ts: posted, channel };
      }
      case 'chat.update':
        if (!post) return { ok: false, error: 'message_not_found' };
        post.text = said;
        post.versions.push(said);
        return { ok: true, ts, channel };
      case 'chat.delete':
        if (post) this.posts.splice(this.posts.indexOf(post), 1);
        return { ok: post !== undefined };
      default:
        return { ok: false, error: 'unknown_method' };
    }
  }
}

const SECRET = 'signing-secret-of-the-tests';

interface DeliveryChoice {
  readonly secret?: string;
  /** Unix seconds. */
  readonly timestamp?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Delivers a payload to a host as Slack does. */
export async function deliver(
  host: { readonly url: string },
  payload: object,
  { secret = SECRET, timestamp = Math.floor(Date.now() / 1000), headers = {} }: DeliveryChoice = {},
): Promise<{ readonly status: number; readonly body: unknown }> {
  const body = JSON.stringify(payload);
  const hash = createHmac('sha256', secret).update(`v0:${timestamp}:${body}`).digest('hex');
  const response = await fetch(`${host.url}/slack/events`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-slack-request-timestamp': String(timestamp),
      'x-slack-signature': `v0=${hash}`,
      ...headers,
    },
    body,
  });
  return { status: response.status, body: await response.json() };
}

let said = 0;

/** A mention of the bot, or with `channel_type: 'im'` and `type: 'message'` a direct message. */
export function slackEvent(event: Readonly<Record<string, unknown>> = {}) {
  said += 1;
  return {
    type: 'event_callback',
    event_id: `Ev${randomUUID()}`,
    team_id: 'T1',
    authorizations: [{ user_id: 'UBOT', is_bot: true }],
    event: {
      type: 'app_mention',
      user: 'U1',
      channel: `C${said}`,
      ts: `1700000000.${String(said).padStart(6, '0')}`,
      text: '<@UBOT> hello',
      ...event,
    },
  };
}
