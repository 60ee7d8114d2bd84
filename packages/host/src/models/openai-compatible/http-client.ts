import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';

// Connections are reused: a turn with tools calls the same server several times.
const options = { keepAlive: true, maxFreeSockets: 64, timeout: 60_000 };
const http = { agent: new HttpAgent(options), request: httpRequest };
const https = { agent: new HttpsAgent(options), request: httpsRequest };

export interface JsonRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface JsonPost extends JsonRequest {
  readonly body: string;
}

/** Posts JSON and returns the reply as soon as its headers have arrived. */
export const postJson = (post: JsonPost): Promise<IncomingMessage> => send('POST', post);

/** Lists of models are long: some servers offer hundreds. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

/** Reads the JSON of a reply; undefined if the server has none. */
export async function fetchJson(
  request: JsonRequest & { readonly body?: string },
): Promise<unknown> {
  const reply = await send(request.body === undefined ? 'GET' : 'POST', request);
  reply.setEncoding('utf8');
  let text = '';
  for await (const piece of reply) {
    text += piece;
    if (text.length > MAX_CHARACTERS) return undefined;
  }
  if (reply.statusCode !== 200) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function send(
  method: 'GET' | 'POST',
  sending: JsonRequest & { readonly body?: string },
): Promise<IncomingMessage> {
  const { url, headers, body, signal } = sending;
  const { agent, request } = url.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    let hasReply = false;
    const sent = request(url, { method, agent, headers, signal }, (reply) => {
      hasReply = true;
      resolve(reply);
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      // The server closed an idle connection just when it was reused: tries again.
      const wasStale = sent.reusedSocket && error.code === 'ECONNRESET' && !hasReply;
      if (wasStale) resolve(send(method, sending));
      else reject(error);
    });
    sent.end(body);
  });
}
