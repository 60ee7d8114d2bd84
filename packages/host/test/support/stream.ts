import type { RunFrameName } from '@sibyl/protocol';
import type { TestUser } from './user.js';

export interface SseFrame {
  readonly event: RunFrameName;
  readonly id: number;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly data: any;
}

/** A stream of frames as a client reads it. */
export class SseStream {
  readonly frames: SseFrame[] = [];
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private readonly decoder = new TextDecoder();
  private buffer = '';
  private hasEnded = false;

  constructor(readonly response: Response) {
    if (!response.body) throw new Error('no body');
    this.reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  }

  get runId(): string {
    return this.response.headers.get('x-run-id') ?? '';
  }

  get lastId(): number {
    return this.frames.at(-1)?.id ?? 0;
  }

  /** The received text of the answer. */
  get text(): string {
    return this.frames
      .filter(({ event }) => event === 'message')
      .map(({ data }) => data.content)
      .join('');
  }

  /** Reads until a frame matches; fails if the stream ends before. */
  async until(matches: (frame: SseFrame) => boolean): Promise<SseFrame> {
    let looked = 0;
    for (;;) {
      for (; looked < this.frames.length; looked++) {
        const frame = this.frames[looked];
        if (frame && matches(frame)) return frame;
      }
      if (this.hasEnded) throw new Error(`The stream ended: ${JSON.stringify(this.frames)}`);
      await this.readMore();
    }
  }

  untilEvent(event: RunFrameName): Promise<SseFrame> {
    return this.until((frame) => frame.event === event);
  }

  /** Reads to the end, which comes after `done`. */
  async toEnd(): Promise<readonly SseFrame[]> {
    while (!this.hasEnded) await this.readMore();
    return this.frames;
  }

  /** Disconnects, as a client whose network is lost. */
  async drop(): Promise<void> {
    await this.reader.cancel();
    this.hasEnded = true;
  }

  private async readMore(): Promise<void> {
    const { done, value } = await this.reader.read();
    this.hasEnded = done;
    this.buffer += this.decoder.decode(value, { stream: !done });
    const blocks = this.buffer.split('\n\n');
    this.buffer = blocks.pop() ?? '';
    for (const block of blocks) if (!block.startsWith(':')) this.frames.push(parseFrame(block));
  }
}

/** A frame has exactly these three lines. */
function parseFrame(block: string): SseFrame {
  const match = /^event: (\w+)\nid: ([1-9]\d*)\ndata: (.+)$/.exec(block);
  if (!match) throw new Error(`not a frame: ${block}`);
  const [, event, id, data = ''] = match;
  return { event: event as RunFrameName, id: Number(id), data: JSON.parse(data) };
}

export async function openSession(user: TestUser): Promise<string> {
  const { status, body } = await user.request('POST', '/sessions');
  if (status !== 201) throw new Error(`POST /sessions: ${status} ${JSON.stringify(body)}`);
  return body.sessionId;
}

export async function stream(
  user: TestUser,
  sessionId: string,
  body: Readonly<Record<string, unknown>> & { readonly message: string },
  headers: Readonly<Record<string, string>> = {},
): Promise<SseStream> {
  const response = await fetch(`${user.host.url}/messages/${sessionId}`, {
    method: 'POST',
    headers: { ...user.headers, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ stream: true, ...body }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return new SseStream(response);
}

export async function join(
  user: TestUser,
  runId: string,
  after: number,
  headers: Readonly<Record<string, string>> = {},
): Promise<SseStream> {
  const response = await fetch(`${user.host.url}/runs/${runId}?after=${after}`, {
    headers: { ...user.headers, ...headers },
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return new SseStream(response);
}
