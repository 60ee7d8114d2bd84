import { Agent, type IncomingMessage, request } from 'node:http';

/** Posts to the model and yields its reply as it comes. */
export type ModelText = (url: string, body: string) => AsyncIterable<string>;

const headers = { 'content-type': 'application/json' };

/** By fetch, as most would write it. */
export async function* textByFetch(url: string, body: string): AsyncGenerator<string> {
  const reply = await fetch(url, { method: 'POST', headers, body });
  if (!reply.ok || !reply.body) throw new Error(`the model answered ${reply.status}`);
  const decoder = new TextDecoder();
  for await (const bytes of reply.body) yield decoder.decode(bytes, { stream: true });
}

const agent = new Agent({ keepAlive: true });

/** By node:http, which takes less of the processor. */
export async function* textByHttp(url: string, body: string): AsyncGenerator<string> {
  const reply = await postByHttp(url, body);
  if (reply.statusCode !== 200) throw new Error(`the model answered ${reply.statusCode}`);
  reply.setEncoding('utf8');
  for await (const text of reply) yield text;
}

function postByHttp(url: string, body: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', headers, agent }, resolve);
    sent.once('error', (error) => {
      // The model let go of an idle connection just as it was used again; fetch asks again by itself.
      if (sent.reusedSocket) resolve(postByHttp(url, body));
      else reject(error);
    });
    sent.end(body);
  });
}
