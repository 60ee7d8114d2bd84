import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  findOutOfOrder,
  findOverlaps,
  type ModelCall,
  toAnswer,
  toMarker,
} from './answering-model.js';
import { openSession, type SseFrame, SseStream } from './stream.js';
import type { TestUser } from './user.js';

/** Messages of one session whose answers have not ended. */
const WINDOW = 3;
const RETRY_MS = 100;

interface SentMessage {
  readonly number: number;
  /** Set when the host has confirmed it. */
  runId: string | undefined;
  status: string | undefined;
}

/**
 * A user who sends numbered messages into one session through a load balancer, without waiting for each answer. Every
 * request is repeated with its Idempotency-Key until a host confirms it, and every broken stream is joined again.
 */
class LoadedChat {
  readonly sent: SentMessage[] = [];
  readonly name = randomUUID().slice(0, 8);

  constructor(
    readonly user: TestUser,
    readonly sessionId: string,
    private readonly load: ChatLoad,
  ) {}

  get open(): SentMessage[] {
    return this.sent.filter(({ status }) => status === undefined);
  }

  async run(): Promise<void> {
    while (!this.load.isStopping) {
      if (this.open.length < WINDOW) await this.sendNext();
      else await sleep(10);
    }
  }

  private async sendNext(): Promise<void> {
    const number = this.sent.length + 1;
    const message: SentMessage = { number, runId: undefined, status: undefined };
    this.sent.push(message);
    if (this.load.sendsWhole && number % 4 === 0) return this.sendWhole(message);
    const stream = await this.post(message, { stream: true });
    const live = new SseStream(stream);
    message.runId = live.runId;
    this.load.acknowledged += 1;
    void this.follow(live).then(
      (status) => {
        message.status = status;
      },
      (error) => this.load.violations.push(`${toMarker(this.name, number)}: ${error}`),
    );
  }

  private async sendWhole(message: SentMessage): Promise<void> {
    for (;;) {
      const response = await this.post(message, { stream: false });
      const body = await readJson(response);
      // The connection broke during the answer.
      if (body === undefined) continue;
      this.load.acknowledged += 1;
      message.runId = '';
      message.status = response.ok ? body.status : 'interrupted';
      return;
    }
  }

  /** Repeats the request until a host has accepted it. */
  private async post({ number }: SentMessage, body: object): Promise<Response> {
    for (;;) {
      const response = await this.request('POST', `/messages/${this.sessionId}`, {
        headers: { 'idempotency-key': `${this.name}-${number}` },
        body: JSON.stringify({ message: `${toMarker(this.name, number)} Hello`, ...body }),
      });
      if (response) return response;
      await sleep(RETRY_MS);
    }
  }

  /** Undefined if it must be repeated. */
  private async request(
    method: string,
    path: string,
    init: { headers?: Record<string, string>; body?: string } = {},
  ): Promise<Response | undefined> {
    const headers = { ...this.user.headers, 'content-type': 'application/json', ...init.headers };
    let response: Response;
    try {
      response = await fetch(this.user.host.url + path, { ...init, method, headers });
    } catch {
      this.load.brokenRequests += 1;
      return undefined;
    }
    if (response.ok) return response;
    const text = await response.text().catch(() => '');
    // A message whose host died before it produced anything has an outcome too.
    if (text.includes('"turn_interrupted"')) return new Response(text, { status: 409 });
    if (response.status === 503 && response.headers.has('retry-after')) this.load.unavailable += 1;
    else this.load.violations.push(`${method} ${path}: ${response.status} ${text}`);
    return undefined;
  }

  /** Reads a run to its end, on any host; returns its status. */
  private async follow(first: SseStream): Promise<string> {
    const frames: SseFrame[] = [];
    let live: SseStream | undefined = first;
    const { runId } = first;
    for (;;) {
      await live?.toEnd().catch(() => undefined);
      frames.push(...(live?.frames ?? []));
      this.checkNumbers(runId, frames);
      const last = frames.at(-1);
      if (last?.event === 'done') return last.data.status;
      live = await this.rejoin(runId, last?.id ?? 0);
    }
  }

  private async rejoin(runId: string, after: number): Promise<SseStream | undefined> {
    await sleep(RETRY_MS);
    this.load.rejoined += 1;
    const response = await this.request('GET', `/runs/${runId}?after=${after}`);
    return response && new SseStream(response);
  }

  /** Numbers rise by one, and jump only where the run was resumed. */
  private checkNumbers(runId: string, frames: readonly SseFrame[]): void {
    frames.forEach(({ id, event, data }, i) => {
      const previous = frames[i - 1]?.id ?? 0;
      if (id === previous + 1 || (id > previous && event === 'run' && data.resumed)) return;
      const frame = `frame ${id} ${event} ${JSON.stringify(data)}`;
      this.load.violations.push(`run ${runId}: ${frame} after ${previous}`);
    });
  }
}

async function readJson(response: Response): Promise<{ status: string } | undefined> {
  try {
    return (await response.json()) as { status: string };
  } catch {
    return undefined;
  }
}

/** Users who keep sending messages until they are stopped. */
export class ChatLoad {
  isStopping = false;
  acknowledged = 0;
  brokenRequests = 0;
  unavailable = 0;
  rejoined = 0;
  /** What must not happen, such as a status 500. */
  readonly violations: string[] = [];
  readonly chats: LoadedChat[] = [];
  private readonly running: Promise<void>[] = [];

  private constructor(readonly sendsWhole: boolean) {}

  /** With `sendsWhole`, every fourth message waits for its whole answer as JSON. */
  static async start(
    users: readonly TestUser[],
    { sendsWhole = false }: { readonly sendsWhole?: boolean } = {},
  ): Promise<ChatLoad> {
    const load = new ChatLoad(sendsWhole);
    for (const user of users) load.chats.push(new LoadedChat(user, await openSession(user), load));
    load.running.push(...load.chats.map((chat) => chat.run()));
    return load;
  }

  /** Messages that were sent and whose answers have not ended. */
  get open(): SentMessage[] {
    return this.chats.flatMap((chat) => chat.open);
  }

  countStatus(status: string): number {
    return this.chats.flatMap(({ sent }) => sent).filter((each) => each.status === status).length;
  }

  /** Sends no more; what was sent is still confirmed. */
  async stop(): Promise<void> {
    this.isStopping = true;
    await Promise.all(this.running);
  }
}

/** Everything that went wrong, by the store, the model and the streams; all lists are empty if nothing did. */
export async function inspectLoad(load: ChatLoad, calls: readonly ModelCall[]) {
  const stored = await Promise.all(load.chats.map(inspectChat));
  return {
    violations: load.violations,
    overlaps: findOverlaps(calls),
    outOfOrder: findOutOfOrder(calls),
    lostOrDuplicated: stored.flatMap(({ lostOrDuplicated }) => lostOrDuplicated),
    wrongAnswers: stored.flatMap(({ wrongAnswers }) => wrongAnswers),
    stillRunning: stored.flatMap(({ stillRunning }) => stillRunning),
  };
}

/** What `inspectLoad` returns if nothing went wrong. */
export const NOTHING_WRONG = {
  violations: [],
  overlaps: [],
  outOfOrder: [],
  lostOrDuplicated: [],
  wrongAnswers: [],
  stillRunning: [],
};

async function inspectChat({ user, sessionId, sent, name }: LoadedChat) {
  const { body } = await user.request('GET', `/messages/${sessionId}`);
  const { messages } = body as { readonly messages: readonly StoredMessage[] };
  const questions = messages.filter(({ type }) => type === 'human').map(({ content }) => content);
  const expected = sent.map(({ number }) => `${toMarker(name, number)} Hello`);
  const isSame = JSON.stringify(questions) === JSON.stringify(expected);
  const { run } = (await user.request('GET', `/sessions/${sessionId}/run`)).body;
  const isOpen = ['queued', 'running', 'paused'].includes(run?.status);
  return {
    lostOrDuplicated: isSame ? [] : [`${name}: sent ${expected.length}, stored ${questions}`],
    wrongAnswers: findWrongAnswers(name, messages),
    stillRunning: isOpen ? [`${name}: ${run.runId} ${run.status}`] : [],
  };
}

interface StoredMessage {
  readonly type: string;
  readonly content: string;
}

/** Answers, complete or not, that do not follow their question. */
function findWrongAnswers(name: string, messages: readonly StoredMessage[]): string[] {
  let number = 0;
  return messages.flatMap(({ type, content }) => {
    if (type === 'human') number += 1;
    const expected = toAnswer(name, number);
    const isRight =
      type === 'human' || content.startsWith(expected) || expected.startsWith(content);
    return isRight ? [] : [`${toMarker(name, number)}: ${content}`];
  });
}
