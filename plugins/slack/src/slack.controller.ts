import { Controller, Headers, HttpCode, Inject, Post } from '@nestjs/common';
import { Describe, RawBody } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { Answers } from './answers.js';
import { readDelivery } from './requests/delivery.js';
import { RequestSignature } from './requests/request-signature.js';
import { messageOf } from './requests/slack-message.js';
import { Inbox } from './store/inbox.js';

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
