const REQUESTS_PER_SECOND = 50;
const TURNS_PER_SESSION = 10;
/** A host that answers more slowly than it is asked gets fewer requests rather than a growing queue. */
const MAX_RUNNING = 200;
const MESSAGE = 'What does the almanac say about the weather on the coast tomorrow?';

interface Chat {
  readonly id: string;
  readonly token: string;
  turns: number;
}

/** A steady mix of requests; of ten there are five JSON turns, two streamed ones, two lists and one history. */
export class SteadyLoad {
  answers = 0;
  failures = 0;
  lastFailure = '';
  private sent = 0;
  private readonly url: string;
  private readonly tokens: readonly string[];
  private readonly idle: Chat[] = [];
  private readonly running = new Set<Promise<void>>();
  private readonly timer: NodeJS.Timeout;

  constructor(url: string, tokens: readonly string[]) {
    this.url = url;
    this.tokens = tokens;
    this.timer = setInterval(() => this.sendNext(), 1000 / REQUESTS_PER_SECOND);
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.running);
  }

  private sendNext(): void {
    if (this.running.size >= MAX_RUNNING) return;
    const one = this.sendOne(this.sent++).catch((error) => {
      this.failures += 1;
      this.lastFailure = String(error);
    });
    this.running.add(one);
    void one.then(() => this.running.delete(one));
  }

  private async sendOne(number: number): Promise<void> {
    const chat = this.idle.shift() ?? (await this.open(number));
    const kind = number % 10;
    if (kind < 7) {
      const body = { message: MESSAGE, stream: kind >= 5 };
      await this.send(chat.token, { method: 'POST', path: `/messages/${chat.id}`, body });
      chat.turns += 1;
    } else {
      const path = kind < 9 ? '/sessions' : `/messages/${chat.id}`;
      await this.send(chat.token, { method: 'GET', path });
    }
    if (chat.turns < TURNS_PER_SESSION) this.idle.push(chat);
    else await this.send(chat.token, { method: 'DELETE', path: `/sessions/${chat.id}` });
    this.answers += 1;
  }

  private async open(number: number): Promise<Chat> {
    const token = this.tokens[number % this.tokens.length] as string;
    const request = { method: 'POST', path: '/sessions', body: { title: 'Soak' } };
    const { sessionId } = JSON.parse(await this.send(token, request));
    return { id: sessionId, token, turns: 0 };
  }

  private async send(
    token: string,
    { method, path, body }: { method: string; path: string; body?: object },
  ): Promise<string> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        'x-auth-type': 'ucan',
        'content-type': 'application/json',
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }
}
