import type { SafeFetch } from '@sibyl/safe-fetch';
import type { OracleUcan } from '../context.js';

const TIMEOUT_MS = 10_000;
const MAX_REPLY_BYTES = 64 * 1024;

interface WebhookDeps {
  readonly fetch: SafeFetch;
  readonly ucan: Pick<OracleUcan, 'signWebhook'>;
}

/** A message to an address that a user chose. */
export interface WebhookDelivery {
  readonly url: string;
  /** Begins with `msg_`; the same for every attempt, so that receivers can recognize a repetition. */
  readonly id: string;
  readonly body: string;
  /** In addition to the type and the signature. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Posts a message that the oracle signs, as Standard Webhooks describes; returns why the receiver did not accept it. */
export async function postWebhook(
  { fetch, ucan }: WebhookDeps,
  { url, id, body, headers }: WebhookDelivery,
): Promise<string | undefined> {
  const timestamp = Math.floor(Date.now() / 1000);
  try {
    const response = await fetch(url, {
      method: 'POST',
      body,
      redirects: 0,
      timeoutMs: TIMEOUT_MS,
      maxBytes: MAX_REPLY_BYTES,
      headers: {
        'content-type': 'application/json',
        ...headers,
        'webhook-id': id,
        'webhook-timestamp': String(timestamp),
        'webhook-signature': ucan.signWebhook({ id, timestamp, body }),
      },
    });
    await response.body?.cancel();
    return response.ok ? undefined : `The receiver answered ${response.status}`;
  } catch (error) {
    return `Not delivered: ${error instanceof Error ? error.message : error}`;
  }
}
