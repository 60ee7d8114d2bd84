import {
  Controller,
  type DynamicModule,
  Headers,
  HttpCode,
  Inject,
  Module,
  Post,
  RequestMethod,
} from '@nestjs/common';
import { Describe, definePlugin, type PluginContext, RawBody, repeat } from '@sibyl/plugin-kit';
import type { FetchFunction } from '@slack/web-api';
import { z } from 'zod';
import { Answers } from './answers.js';
import { messageOf, RequestSignature, readDelivery } from './delivery.js';
import { Inbox, migrations } from './inbox.js';
import { connectSlack } from './live-reply.js';
import { Threads } from './threads.js';

/** The plugin's variables. */
export const SlackConfig = z.object({
  SLACK_SIGNING_SECRET: z
    .string()
    .trim()
    .min(1)
    .describe("The app's signing secret; deliveries without its signature are refused"),
  SLACK_BOT_TOKEN: z
    .string()
    .trim()
    .min(1)
    .describe('Token of the bot that posts the answers, xoxb-…; needs chat:write'),
  SLACK_API_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .transform((url) => (url.endsWith('/') ? url : `${url}/`))
    .prefault('https://slack.com/api/')
    .describe("Address of Slack's Web API"),
});
export type SlackConfig = z.output<typeof SlackConfig>;

/** Reply of `POST /slack/events`: the challenge where Slack asks for one. */
const SlackAcknowledged = z
  .object({ ok: z.literal(true), challenge: z.string().optional() })
  .meta({ id: 'SlackAcknowledged' });
type SlackAcknowledged = z.infer<typeof SlackAcknowledged>;

@Controller('slack')
export class SlackController {
  constructor(
    @Inject(RequestSignature) private readonly signature: RequestSignature,
    @Inject(Inbox) private readonly inbox: Inbox,
    @Inject(Answers) private readonly answers: Answers,
  ) {}

  /** Answers as soon as the message is kept: Slack wants to hear within three seconds. */
  @Post('events')
  @HttpCode(200)
  @Describe({
    summary: 'What Slack delivers: messages, and the check of this address',
    reply: SlackAcknowledged,
    errors: ['missing_authentication', 'validation_failed', 'invalid_json'],
    headers: {
      'x-slack-signature': 'Over the timestamp and the body, with the signing secret',
      'x-slack-request-timestamp': 'When it was signed, in Unix seconds',
    },
  })
  async receive(
    @RawBody() body: Buffer,
    @Headers('x-slack-signature') signature: string | undefined,
    @Headers('x-slack-request-timestamp') timestamp: string | undefined,
  ): Promise<SlackAcknowledged> {
    this.signature.assert({ signature, timestamp, body });
    const delivery = readDelivery(body);
    if (delivery.kind === 'challenge') return { ok: true, challenge: delivery.challenge };
    const message = delivery.kind === 'event' ? messageOf(delivery.callback) : undefined;
    if (message && (await this.inbox.accept(message))) this.answers.begin({ message, replies: [] });
    return { ok: true };
  }
}

const PERIOD_MS = 10_000;

interface Kept {
  readonly inbox: Inbox;
  readonly answers: Answers;
}

/** Answers what was left behind or postponed, now and from time to time. */
export function keepInbox(
  kept: Kept,
  { logger, onClose }: Pick<PluginContext, 'logger' | 'onClose'>,
): void {
  // Runs after the last round, which may begin answers: what was registered last is closed first.
  onClose(() => kept.answers.settled());
  repeat(() => keep(kept), { everyMs: PERIOD_MS, logger, onClose });
}

async function keep({ inbox, answers }: Kept): Promise<void> {
  await inbox.renew();
  await answers.takeOver();
  await inbox.forgetOld();
}

/** Slack lets a message change about once a second. */
const PAUSE_MS = 1_000;

@Module({})
class SlackModule {}

/** The oracle answers in Slack, to mentions and direct messages. */
export const slack = definePlugin({
  name: 'slack',
  version: '0.1.0',
  manifest: {
    title: 'Slack',
    summary: 'Answers mentions and direct messages in Slack.',
    whenToUse: [],
    category: 'channels',
    visibility: 'silent',
  },
  configSchema: SlackConfig,
  autoDetect: ({ SLACK_SIGNING_SECRET, SLACK_BOT_TOKEN }) =>
    Boolean(SLACK_SIGNING_SECRET && SLACK_BOT_TOKEN),
  autoDetectHint: 'set SLACK_SIGNING_SECRET and SLACK_BOT_TOKEN',
  migrations,
  getAuthExcludedRoutes: () => [{ path: 'slack/events', method: RequestMethod.POST }],
  getNestModules: async (context) => [await slackModule(context)],
});

async function slackModule(context: PluginContext<SlackConfig>): Promise<DynamicModule> {
  const { database, turns, config, logger } = context;
  const clock = Date.now;
  const inbox = new Inbox({ database, clock });
  const threads = new Threads({ database, turns });
  const channel = await connectSlack({
    token: config.SLACK_BOT_TOKEN,
    url: config.SLACK_API_URL,
    fetch: context.fetch as FetchFunction,
  });
  const answers = new Answers({ inbox, threads, turns, channel, logger, pauseMs: PAUSE_MS });
  keepInbox({ inbox, answers }, context);
  const signature = new RequestSignature(config.SLACK_SIGNING_SECRET, clock);
  return {
    module: SlackModule,
    controllers: [SlackController],
    providers: [
      { provide: RequestSignature, useValue: signature },
      { provide: Inbox, useValue: inbox },
      { provide: Answers, useValue: answers },
    ],
  };
}
