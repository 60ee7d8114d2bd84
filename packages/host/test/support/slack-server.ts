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
  /** Answers to commands and buttons. */
  readonly responses: { readonly text: string }[] = [];
  /** Modals that were opened, by the trigger. */
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly views = new Map<string, any>();
  /** Files in conversations. */
  readonly uploads: {
    id: string;
    name: string;
    content: string;
    channel?: string;
    thread?: string;
  }[] = [];
  /** Files that users have sent, by name. */
  readonly files = new Map<string, Buffer>();
  /** Buttons of the newest version of each post. */
  readonly buttons = new Map<string, Button[]>();
  /** Where Socket Mode connects. */
  socketUrl = '';
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

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** The variables of a host that uses it. */
  get env() {
    return {
      SLACK_SIGNING_SECRET: SECRET,
      SLACK_BOT_TOKEN: 'xoxb-test',
      SLACK_API_URL: `${this.url}/api`,
      OUTGOING_ALLOW: '127.0.0.1',
    };
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    const body = await text(request);
    if (path.startsWith('/files/')) return this.sendFile(path, request, response);
    if (path.startsWith('/upload/')) {
      const [, , id = '', name = ''] = path.split('/');
      this.uploads.push({ id, name, content: readUpload(body) });
      return void response.end('OK');
    }
    if (path === '/respond') {
      this.responses.push(JSON.parse(body));
      return void response.end('ok');
    }
    const form = new URLSearchParams(body);
    this.tokens.add(String(request.headers.authorization));
    if (this.failing.calls > 0) {
      this.failing.calls -= 1;
      return void response.writeHead(this.failing.status, { 'retry-after': '1' }).end('{}');
    }
    const method = request.url?.split('/').at(-1) ?? '';
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(this.call(method, Object.fromEntries(form))));
  }

  private sendFile(path: string, request: IncomingMessage, response: ServerResponse): void {
    const file = this.files.get(path.split('/')[2] ?? '');
    const isAllowed = request.headers.authorization === 'Bearer xoxb-test';
    if (!file || !isAllowed) return void response.writeHead(404).end();
    response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(file);
  }

  private readButtons(ts: string, blocks = '[]'): void {
    const found: { elements?: Button[] }[] = JSON.parse(blocks);
    this.buttons.set(
      ts,
      found.flatMap(({ elements = [] }) => elements),
    );
  }

  private call(method: string, form: Record<string, string | undefined>): object {
    const { channel = '', text: said = '', ts = '', thread_ts: thread } = form;
    const post = this.posts.find((one) => one.ts === ts && one.channel === channel);
    switch (method) {
      case 'chat.postMessage': {
        const posted = `${Date.now()}.${String(this.posts.length).padStart(6, '0')}`;
        this.readButtons(posted, form.blocks);
        this.posts.push({ ts: posted, channel, thread, text: said, versions: [said] });
        return { ok: true, ts: posted, channel };
      }
      case 'chat.update':
        if (!post) return { ok: false, error: 'message_not_found' };
        this.readButtons(ts, form.blocks);
        post.text = said;
        post.versions.push(said);
        return { ok: true, ts, channel };
      case 'chat.delete':
        if (!post) return { ok: false, error: 'message_not_found' };
        this.posts.splice(this.posts.indexOf(post), 1);
        return { ok: true };
      case 'views.open':
        this.views.set(form.trigger_id ?? '', JSON.parse(form.view ?? '{}'));
        return { ok: true };
      case 'conversations.open':
        return { ok: true, channel: { id: `D${form.users}` } };
      case 'files.getUploadURLExternal':
        fileNumber += 1;
        return {
          ok: true,
          file_id: `F${fileNumber}`,
          upload_url: `${this.url}/upload/F${fileNumber}/${form.filename}`,
        };
      case 'files.completeUploadExternal':
        for (const { id } of JSON.parse(form.files ?? '[]'))
          Object.assign(this.uploads.find((one) => one.id === id) ?? {}, {
            channel: form.channel_id,
            thread,
          });
        return { ok: true, files: [] };
      case 'apps.connections.open':
        return { ok: true, url: this.socketUrl };
      default:
        return { ok: false, error: 'unknown_method' };
    }
  }
}

/** The bytes of an upload, alone or in a form. */
const readUpload = (body: string) => /\r\n\r\n(.*?)\r\n--/s.exec(body)?.[1] ?? body;

interface Button {
  readonly action_id: string;
  readonly value?: string;
  readonly text: { readonly text: string };
}

export const SECRET = 'signing-secret-of-the-tests';

interface DeliveryChoice {
  readonly secret?: string;
  /** Unix seconds. */
  readonly timestamp?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

export const FORM = 'application/x-www-form-urlencoded';

/** Delivers a payload to a host as Slack does: as a form with that content type, otherwise as JSON. */
export async function deliver(
  host: { readonly url: string },
  payload: object,
  { secret = SECRET, timestamp = Math.floor(Date.now() / 1000), headers = {} }: DeliveryChoice = {},
): Promise<{ readonly status: number; readonly body: unknown }> {
  const isForm = headers['content-type'] === FORM;
  const body = isForm
    ? new URLSearchParams(payload as Record<string, string>).toString()
    : JSON.stringify(payload);
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
let fileNumber = 0;

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
