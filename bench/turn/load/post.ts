import { Agent, type IncomingMessage, request } from 'node:http';

export interface PostOptions {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Posted {
  readonly text: string;
  /** Milliseconds from sending to the first token. */
  readonly firstTokenMs: number;
  /** All that came over the connection: status line, headers, framing and body. */
  readonly bytes: number;
}

const agent = new Agent({ keepAlive: true });

/** What the stub's tokens are made of. */
export const TOKEN = 'word ';

/** Sends one request over a kept connection and reads the answer to its end. */
export function post(options: PostOptions): Promise<Posted> {
  const { url, path, headers, body } = options;
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const sent = request(
      {
        agent,
        hostname,
        port,
        path,
        method: 'POST',
        headers: { ...headers, 'content-length': Buffer.byteLength(body) },
      },
      (reply) => read(reply, start).then(resolve, reject),
    );
    sent.once('error', (error: NodeJS.ErrnoException) => {
      // The server let go of an idle connection just as it was used again.
      if (sent.reusedSocket && error.code === 'ECONNRESET') resolve(post(options));
      else reject(error);
    });
    sent.end(body);
  });
}

const alreadyRead = new WeakMap<object, number>();

function read(reply: IncomingMessage, start: number): Promise<Posted> {
  return new Promise((resolve, reject) => {
    const { socket } = reply;
    let text = '';
    let firstTokenMs = 0;
    reply.setEncoding('latin1');
    reply.on('data', (chunk: string) => {
      text += chunk;
      if (firstTokenMs === 0 && chunk.includes(TOKEN)) firstTokenMs = performance.now() - start;
    });
    reply.once('error', reject);
    reply.once('end', () => {
      const bytes = socket.bytesRead - (alreadyRead.get(socket) ?? 0);
      alreadyRead.set(socket, socket.bytesRead);
      if (reply.statusCode === 200 || reply.statusCode === 201)
        resolve({ text, firstTokenMs, bytes });
      else reject(new Error(`${reply.statusCode}: ${text}`));
    });
  });
}
