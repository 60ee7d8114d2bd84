import { z } from 'zod';

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
