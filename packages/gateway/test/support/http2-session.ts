import { headerBlockOf } from '../../src/upstream/http2/header-block.js';
import { Session } from '../../src/upstream/http2/session.js';
import type { Cut } from '../../src/upstream/http2/stream.js';

interface Answer {
  /** Headers first, then the trailers. */
  readonly sections: Record<string, string>[];
  readonly body: Buffer;
}

export interface OpenSession {
  readonly session: Session;
  readonly closed: Promise<Error | undefined>;
  /** Asks something and waits for all of the answer; throws what cuts it off. */
  ask(body?: Buffer, fields?: readonly string[]): Promise<Answer>;
}

/** Opens a session and waits until it may be used. */
export async function openSession(url: string): Promise<OpenSession> {
  const ready = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<Error | undefined>();
  const session = new Session(
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
    ask: (body = Buffer.from('?'), fields = []) => ask(session, body, fields),
  };
}

function ask(session: Session, body: Buffer, fields: readonly string[]): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const sections: Answer['sections'] = [];
  const pieces: Buffer[] = [];
  const request = [':method', 'POST', ':scheme', 'http', ':authority', 'node', ':path', '/'];
  const stream = session.request(headerBlockOf([...request, ...fields]), {
    onHeaders: (section) => sections.push(Object.fromEntries(section)),
    onData: (piece) => pieces.push(Buffer.from(piece)),
    onEnd: () => resolve({ sections, body: Buffer.concat(pieces) }),
    onCut: (cut: Cut) => reject(cut),
  });
  stream.end(body);
  return promise;
}
