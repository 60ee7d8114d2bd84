import { type DynamicModule, Module, RequestMethod } from '@nestjs/common';
import { definePlugin, type PluginContext } from '@sibyl/plugin-kit';
import type { FetchFunction } from '@slack/web-api';
import { Answers } from './answers.js';
import { SlackConfig } from './config.js';
import { keepInbox } from './keep-inbox.js';
import { connectSlack } from './replies/slack-channel.js';
import { RequestSignature } from './requests/request-signature.js';
import { SlackController } from './slack.controller.js';
import { Inbox } from './store/inbox.js';
import { migrations } from './store/tables.js';
import { Threads } from './store/threads.js';

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
