import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';

// Connections are kept: a turn with tools asks the same server several times.
const options = { keepAlive: true, maxFreeSockets: 64, timeout: 60_000 };
const http = { agent: new HttpAgent(options), request: httpRequest };
const https = { agent: new HttpsAgent(options), request: httpsRequest };

export interface JsonPost {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

/** Posts JSON and gives the reply as soon as its head is there. */
export function postJson(post: JsonPost): Promise<IncomingMessage> {
  const { url, headers, body, signal } = post;
  const { agent, request } = url.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    let hasReply = false;
    const sent = request(url, { method: 'POST', agent, headers, signal }, (reply) => {
      hasReply = true;
      resolve(reply);
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      // The server closed a kept connection just as it was used again: not a fault of anyone's.
      const wasStale = sent.reusedSocket && error.code === 'ECONNRESET' && !hasReply;
      if (wasStale) resolve(postJson(post));
      else reject(error);
    });
    sent.end(body);
  });
}
