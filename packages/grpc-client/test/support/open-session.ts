import { openNodeSession } from '../../src/http2/node-session.js';
import { openOwnSession } from '../../src/http2/session.js';
import type { Session } from '../../src/http2/transport.js';

const openers = { own: openOwnSession, node: openNodeSession };

interface Response {
  /** Headers first, then the trailers. */
  readonly sections: Record<string, string>[];
  readonly body: Buffer;
}

export interface OpenedSession {
  readonly session: Session;
  readonly closed: Promise<Error | undefined>;
  /** Sends a request and reads the whole response; rejects with the `StreamError`. */
  request(body?: Buffer, fields?: readonly string[]): Promise<Response>;
}

/** Opens a session and waits until it is ready. */
export async function openReadySession(
  url: string,
  http2: keyof typeof openers,
): Promise<OpenedSession> {
  const ready = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<Error | undefined>();
  const session = openers[http2](
    { scheme: 'http', url: new URL(url) },
    {
      onReady: ready.resolve,
      onRetired: () => {},
      onClosed: (cause) => {
        closed.resolve(cause);
        ready.reject(cause);
      },
    },
  );
  await ready.promise;
  return {
    session,
    closed: closed.promise,
    request: (body = Buffer.from('?'), fields = []) => request(session, body, fields),
  };
}

const FIXED = [':method', 'POST', ':scheme', 'http', ':authority', 'node', ':path', '/'];

function request(session: Session, body: Buffer, variable: readonly string[]): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const sections: Response['sections'] = [];
  const chunks: Buffer[] = [];
  const stream = session.request(
    { fixed: FIXED, variable },
    {
      onHeaders: (section) => sections.push(Object.fromEntries(section)),
      onData: (chunk) => chunks.push(Buffer.from(chunk)),
      onEnd: () => resolve({ sections, body: Buffer.concat(chunks) }),
      onError: reject,
    },
  );
  stream.end(body);
  return promise;
}
