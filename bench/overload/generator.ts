// Sends turns of many users at a steady rate, each on a new connection, whether or not earlier ones have been answered.
// It receives what to send as messages of its parent, and sends back what came of it.
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { mintTokens } from '../support/server-process.ts';

/** Of this machine, so that limits by address apply as if users were at home. */
const ADDRESSES = 250;
const SESSIONS_AT_ONCE = 16;
/** How long a turn may take before it counts as lost. */
const LOST_MS = 120_000;

export interface Target {
  readonly url: string;
  readonly audience: string;
  readonly users: number;
}

export interface Load {
  readonly perSecond: number;
  readonly seconds: number;
}

export interface Outcome {
  /** 0 if the connection was lost. */
  readonly status: number;
  readonly code: string | undefined;
  readonly hasRetryAfter: boolean;
  readonly ms: number;
}

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body: object;
}

/** A user at an address of this machine, with one session. */
class User {
  isWaiting = false;
  private sessionId = '';
  private readonly url: URL;
  private readonly token: string;
  private readonly localAddress: string;

  constructor(url: string, token: string, number: number) {
    this.url = new URL(url);
    this.token = token;
    this.localAddress = `127.0.1.${1 + (number % ADDRESSES)}`;
  }

  async openSession(): Promise<void> {
    const { status, text } = await this.send({ method: 'POST', path: '/sessions', body: {} });
    if (status !== 201) throw new Error(`POST /sessions: ${status} ${text}`);
    this.sessionId = JSON.parse(text).sessionId;
  }

  /** Sends a message and waits for its answer. */
  async ask(): Promise<Outcome> {
    const startedAt = performance.now();
    this.isWaiting = true;
    try {
      const body = { message: 'What will the weather be on the coast tomorrow?' };
      const path = `/messages/${this.sessionId}`;
      const { status, text, hasRetryAfter } = await this.send({ method: 'POST', path, body });
      const code = status === 200 ? undefined : JSON.parse(text).code;
      return { status, code, hasRetryAfter, ms: performance.now() - startedAt };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      return { status: 0, code, hasRetryAfter: false, ms: performance.now() - startedAt };
    } finally {
      this.isWaiting = false;
    }
  }

  private send({ method, path, body }: Sent) {
    const { hostname, port } = this.url;
    const { localAddress, token } = this;
    const bytes = JSON.stringify(body);
    const headers = {
      authorization: `Bearer ${token}`,
      'x-auth-type': 'ucan',
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(bytes),
    };
    return new Promise<{ status: number; text: string; hasRetryAfter: boolean }>(
      (resolve, reject) => {
        const options = { hostname, port, method, path, headers, localAddress, agent: false };
        const sent = request(options, (response) => {
          const { statusCode: status = 0 } = response;
          const hasRetryAfter = response.headers['retry-after'] !== undefined;
          let text = '';
          response.setEncoding('utf8').on('data', (part: string) => {
            text += part;
          });
          response.on('end', () => resolve({ status, text, hasRetryAfter })).on('error', reject);
        });
        sent.setTimeout(LOST_MS, () => sent.destroy(new Error('no answer')));
        sent.on('error', reject).end(bytes);
      },
    );
  }
}

async function openSessions(users: readonly User[]): Promise<void> {
  const left = [...users];
  const openNext = async () => {
    for (let user = left.pop(); user; user = left.pop()) await user.openSession();
  };
  await Promise.all(Array.from({ length: SESSIONS_AT_ONCE }, openNext));
}

async function sendTurns(
  users: readonly User[],
  { perSecond, seconds }: Load,
): Promise<readonly Outcome[]> {
  const outcomes: Promise<Outcome>[] = [];
  const startedAt = performance.now();
  for (let next = 0; performance.now() - startedAt < seconds * 1000; ) {
    await sleep(10);
    const due = ((performance.now() - startedAt) / 1000) * perSecond;
    while (outcomes.length < due) {
      const user = findFree(users, next++);
      // The host, or this process, is far behind.
      if (!user) break;
      outcomes.push(user.ask());
    }
  }
  return Promise.all(outcomes);
}

function findFree(users: readonly User[], from: number): User | undefined {
  for (let i = 0; i < users.length; i++) {
    const user = users[(from + i) % users.length] as User;
    if (!user.isWaiting) return user;
  }
  return undefined;
}

let users: readonly User[] = [];

process.on('message', async (message: { target: Target } | { load: Load }) => {
  if ('target' in message) {
    const { url, audience, users: count } = message.target;
    users = mintTokens(count, audience).map((token, i) => new User(url, token, i));
    await openSessions(users);
    process.send?.('ready');
  } else process.send?.(await sendTurns(users, message.load));
});
process.once('disconnect', () => process.exit());
