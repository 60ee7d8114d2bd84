import { type Logger, OracleError } from '@sibyl/plugin-kit';
import { type Delivery, readEvent, readFields } from './delivery.js';
import { readInteraction } from './interactions.js';
import type { SlackReply } from './receiver.js';

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
export async function openSocketMode(options: SocketModeOptions): Promise<() => Promise<void>> {
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
