import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';

const REQUEST_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** One request and its answer on their way through the gateway. */
export class Exchange {
  readonly startedAt = performance.now();
  /** The path, still percent-encoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly requestId: string;
  /** The gRPC method, or what else was asked, for the metrics. */
  subject = 'unmatched';
  /** The height asked for, once it is known. */
  height: number | undefined;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
  ) {
    const target = request.url ?? '/';
    const mark = target.indexOf('?');
    this.path = mark < 0 ? target : target.slice(0, mark);
    this.query = new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1));
    const given = request.headers['x-request-id'];
    this.requestId = typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID();
  }

  get method(): string {
    return this.request.method ?? 'GET';
  }

  /** Makes a signal that fires when the client has gone before its answer was sent. */
  gone(): AbortSignal {
    const controller = new AbortController();
    this.response.once('close', () => {
      if (!this.response.writableFinished) controller.abort();
    });
    return controller.signal;
  }
}
