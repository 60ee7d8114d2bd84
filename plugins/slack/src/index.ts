import {
  type Diagnosis,
  definePlugin,
  defineRoute,
  type Logger,
  OracleError,
  repeat,
  type SafeFetch,
  type SetupContext,
} from '@sibyl/plugin-kit';
import { InboxWorker, listFileTools, ResultAddresses, sendMedia } from '@sibyl/plugin-kit/chat';
import { z } from 'zod';
import {
  type Delivery,
  RequestSignature,
  readDelivery,
  readEvent,
  readFields,
  type SlackMessage,
} from './delivery.js';
import { CLIENT, shareFiles, toFileChat } from './files.js';
import { createInbox, tables } from './inbox.js';
import { readInteraction } from './interactions.js';
import { connectSlack, MAX_LENGTH } from './live-reply.js';
import { MessageAnswerer } from './message-answerer.js';
import { splitMessage, toMrkdwn } from './mrkdwn.js';
import { PREFERENCE_STORE, Receiver, SlackReply } from './receiver.js';
import { Threads } from './threads.js';

/** The plugin's environment variables. */
export const SlackConfig = z.object({
  SLACK_SIGNING_SECRET: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe("The app's signing secret; deliveries without its signature are rejected"),
  SLACK_BOT_TOKEN: z
    .string()
    .trim()
    .min(1)
    .describe('Token of the bot that posts the answers, xoxb-…; needs chat:write'),
  SLACK_APP_TOKEN: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe('App-level token, xapp-…, with connections:write: turns on Socket Mode'),
  SLACK_API_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .transform((url) => (url.endsWith('/') ? url : `${url}/`))
    .prefault('https://slack.com/api/')
    .describe("Address of Slack's Web API"),
});
export type SlackConfig = z.output<typeof SlackConfig>;

/** Answers mentions, direct messages and commands in Slack. */
export const slack = definePlugin({
  name: 'slack',
  version: '0.1.0',
  manifest: {
    title: 'Slack',
    summary: 'Answers mentions, direct messages and commands in Slack.',
    whenToUse: [],
    category: 'channels',
    visibility: 'silent',
  },
  softDependsOn: ['user-preferences'],
  configSchema: SlackConfig,
  autoDetect: ({ SLACK_SIGNING_SECRET, SLACK_APP_TOKEN, SLACK_BOT_TOKEN }) =>
    Boolean(SLACK_BOT_TOKEN && (SLACK_SIGNING_SECRET || SLACK_APP_TOKEN)),
  autoDetectHint: 'set SLACK_BOT_TOKEN, and SLACK_SIGNING_SECRET or SLACK_APP_TOKEN',
  tables,
  diagnose: async ({ config, fetch }) => [await diagnoseSlack(config, fetch)],
  setup: (context) => createServices(context),
  close: async ({ rounds, worker, disconnect }) => {
    await disconnect?.();
    // The last round may still start answers.
    await rounds.stop();
    await worker.close();
  },
  when: { clients: [CLIENT] },
  getSharedState: ({ services }) => ({
    ...shareFiles(services),
    ...services.results.toChat(async (channel, { markdown }) => {
      for (const text of splitMessage(toMrkdwn(markdown), MAX_LENGTH))
        await services.channel.post({ channel }, { text });
    }),
  }),
  getRequestTools: (turn) => listFileTools(turn, toFileChat(turn.services)),
  getMiddlewares: ({ services }) => [sendMedia(toFileChat(services))],
  routes: ({ services: { signature, receiver } }) => [
    defineRoute({
      method: 'POST',
      path: '/slack/events',
      auth: 'public',
      summary: 'Receives messages, commands, buttons and modals from Slack, and verifies this URL',
      acceptsForms: true,
      reply: SlackReply,
      errors: ['missing_authentication', 'validation_failed', 'invalid_json'],
      headers: {
        'x-slack-signature': 'Over the timestamp and the body, with the signing secret',
        'x-slack-request-timestamp': 'When it was signed, in Unix seconds',
      },
      // Replies as soon as the message is stored: Slack waits for at most three seconds.
      handler: ({ rawBody: body, headers }): Promise<SlackReply> => {
        signature.assert({
          signature: headers['x-slack-signature'],
          timestamp: headers['x-slack-request-timestamp'],
          body,
        });
        return receiver.receive(readDelivery(body, headers['content-type']));
      },
    }),
  ],
});

const ROUND_MS = 10_000;
/** Slack permits about one update of a message per second. */
const UPDATE_INTERVAL_MS = 1_000;

async function createServices(context: SetupContext<SlackConfig>) {
  const { database, turns, config, logger, fetch, shared, hosts } = context;
  const { SLACK_BOT_TOKEN: token, SLACK_APP_TOKEN: appToken, SLACK_API_URL: url } = config;
  const inbox = createInbox({ database, clock: database.now, hosts });
  const threads = new Threads({ database, turns });
  const channel = await connectSlack({ token, url, fetch });
  const pauseMs = UPDATE_INTERVAL_MS;
  const follow = (message: SlackMessage): Promise<void> => worker.follow(message);
  const common = { inbox, threads, turns, channel };
  const answerer = new MessageAnswerer({ ...common, follow, logger, pauseMs });
  const worker = new InboxWorker({
    inbox,
    logger,
    turns,
    answer: (waiting) => answerer.answer(waiting),
    describe: ({ eventId, channel: id }: SlackMessage) => ({ eventId, channel: id }),
  });
  const preferences = shared.get(PREFERENCE_STORE);
  const results = new ResultAddresses({ database, table: 'slack_results', chat: 'slack' });
  const receiver = new Receiver({ ...common, worker, preferences, results, logger });
  return {
    threads,
    channel,
    worker,
    receiver,
    results,
    signature: new RequestSignature(config.SLACK_SIGNING_SECRET, Date.now),
    rounds: repeat(() => worker.runRound(), { everyMs: ROUND_MS, logger }),
    disconnect: appToken
      ? await openSocketMode({ appToken, url, logger, receive: (sent) => receiver.receive(sent) })
      : undefined,
  };
}

/** Asks Slack whether the bot's token is valid. */
async function diagnoseSlack(
  { SLACK_API_URL, SLACK_BOT_TOKEN }: SlackConfig,
  fetch: SafeFetch,
): Promise<Diagnosis> {
  try {
    const response = await fetch(`${SLACK_API_URL}auth.test`, {
      method: 'POST',
      headers: { authorization: `Bearer ${SLACK_BOT_TOKEN}` },
      timeoutMs: 10_000,
    });
    const { ok, team, user, error } = SlackIdentity.parse(await response.json());
    if (ok) return { name: 'Slack', ok, text: `${user} in ${team}` };
    return { name: 'Slack', ok, text: `Slack answers ${error}`, remedy: 'Check SLACK_BOT_TOKEN' };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { name: 'Slack', ok: false, text, remedy: 'Check SLACK_API_URL and the network' };
  }
}

const SlackIdentity = z.object({
  ok: z.boolean(),
  team: z.string().optional(),
  user: z.string().optional(),
  error: z.string().optional(),
});

interface SocketModeOptions {
  readonly appToken: string;
  readonly url: string;
  readonly logger: Logger;
  readonly receive: (delivery: Delivery) => Promise<SlackReply>;
}

interface Envelope {
  readonly type: string;
  // biome-ignore lint/suspicious/noExplicitAny: the readers check it.
  readonly body: any;
  readonly accepts_response_payload?: boolean;
  readonly ack: (reply?: Record<string, unknown>) => Promise<void>;
}

/** Receives deliveries over a connection that the host opens, so that Slack need not reach the host. */
async function openSocketMode(options: SocketModeOptions): Promise<() => Promise<void>> {
  const { appToken, url: slackApiUrl, logger } = options;
  const { SocketModeClient, LogLevel } = await loadSdk();
  const client = new SocketModeClient({
    appToken,
    clientOptions: { slackApiUrl, retryConfig: { forever: true, maxTimeout: 60_000 } },
    logger: createLogger(logger, LogLevel.WARN),
  });
  client.on('slack_event', (envelope: Envelope) => void handle(envelope, options));
  // Slack may be down when the host starts; the client tries again.
  client.start().catch((err) => logger.error({ err }, 'cannot connect to Slack by Socket Mode'));
  return () => client.disconnect();
}

/** Acknowledges what was received; Slack delivers the rest again. */
async function handle(envelope: Envelope, { receive, logger }: SocketModeOptions): Promise<void> {
  const { type, body, ack } = envelope;
  try {
    const reply = await receive(readEnvelope(type, body));
    await ack(envelope.accepts_response_payload ? reply : undefined);
  } catch (err) {
    logger.warn({ err, type }, 'a delivery of Slack failed');
    if (err instanceof OracleError && err.status < 500) await ack().catch(() => undefined);
  }
}

function readEnvelope(type: string, body: Envelope['body']): Delivery {
  if (type === 'events_api') return readEvent(body);
  if (type === 'slash_commands') return readFields(body ?? {});
  return readInteraction(body) ?? { kind: 'other' };
}

/** The SDK is an optional dependency and loads only with Socket Mode. */
async function loadSdk() {
  try {
    return await import('@slack/socket-mode');
  } catch (cause) {
    const message = 'Socket Mode needs the packages @slack/socket-mode and undici: install them';
    throw new Error(message, { cause });
  }
}

/** The log of the host, without what the client says about every message. */
function createLogger<Level>(logger: Logger, level: Level) {
  return {
    debug: () => {},
    info: () => {},
    warn: (...parts: unknown[]) => logger.warn({ parts: parts.map(String) }, 'Slack Socket Mode'),
    error: (...parts: unknown[]) => logger.warn({ parts: parts.map(String) }, 'Slack Socket Mode'),
    setLevel: () => {},
    setName: () => {},
    getLevel: () => level,
  };
}
