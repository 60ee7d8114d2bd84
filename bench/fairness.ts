// What users notice while 200 new keys of one address take all that they can: stalled turns, uploads, archives, exports that are
// not read, pushes to receivers that do not answer, and sockets; against a host with default limits, for two minutes of each
// round, or what the argument says: npm run bench:fairness -- <seconds>
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { json, text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { describeMachine, quantile } from './support/figures.ts';
import { startServer } from './support/server-process.ts';

const seconds = Number(process.argv[2] ?? 120);
const KEYS = 200;
/** All of 127.0.0.0/8 is this machine, on Linux. */
const ATTACKER = '127.0.0.2';
const ELSEWHERE = '127.0.0.3';
/** Of one user, between two turns. */
const TURN_EVERY_MS = 1_000;
const OTHERS_EVERY_MS = 10_000;
const LIMIT_MS = 10_000;
const ANSWER_MS = 200;
/** How long a request of the generator is kept open, how many of one key, and how often it begins another one. */
const HELD_MS = 20_000;
const MAX_OPEN = 20;
const START_EVERY_MS = 1_000;
const ATTACK = 'stall';
const NEIGHBORS = 20;

interface Reply {
  readonly status: number;
  readonly body: string;
}

interface Call {
  readonly method?: string;
  readonly body?: string | Buffer;
  readonly type?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

class Client {
  private readonly signer = generateSigner();
  private token = '';
  private mintedAt = Number.NEGATIVE_INFINITY;

  private readonly host: { readonly url: string; readonly did: string };
  readonly address: string;

  constructor(host: { readonly url: string; readonly did: string }, address: string) {
    this.host = host;
    this.address = address;
  }

  get did(): string {
    return this.signer.did;
  }

  get headers(): Record<string, string> {
    if (performance.now() - this.mintedAt > 200_000) {
      const { ok } = mintAuthInvocation({
        signer: this.signer,
        audience: this.host.did,
        ttlSeconds: 300,
      });
      this.token = ok?.token ?? '';
      this.mintedAt = performance.now();
    }
    return { authorization: `Bearer ${this.token}`, 'x-auth-type': 'ucan' };
  }

  open(path: string, { method = 'POST', type = 'application/json', headers = {} }: Call) {
    return request(this.host.url + path, {
      method,
      localAddress: this.address,
      agent: false,
      headers: { ...this.headers, 'content-type': type, ...headers },
    });
  }

  send(path: string, call: Call = {}): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const sent = this.open(path, call);
      sent.on('error', reject);
      sent.on('response', (response: IncomingMessage) =>
        text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }), reject),
      );
      sent.end(call.body);
    });
  }

  /** Begins a request and leaves it: sends no more, reads no more. */
  async hold(path: string, call: Call & { readonly start?: string }): Promise<void> {
    const sent = this.open(path, call);
    const refused = new Promise<void>((resolve) => {
      sent.on('error', () => resolve());
      sent.on('response', (response: IncomingMessage) => {
        if (response.statusCode === 200) return;
        response.resume();
        resolve();
      });
    });
    if (call.start !== undefined) sent.write(call.start);
    else sent.end(call.body);
    await Promise.race([refused, sleep(HELD_MS)]);
    sent.destroy();
  }

  async openSession(): Promise<string> {
    const { status, body } = await this.send('/sessions');
    if (status !== 201) throw new Error(`POST /sessions: ${status}`);
    return JSON.parse(body).sessionId;
  }

  async turn(message: string, sessionId?: string): Promise<number> {
    const session = sessionId ?? (await this.openSession());
    const body = JSON.stringify({ message });
    return (await this.send(`/messages/${session}`, { body })).status;
  }

  push(message: string, url: string): Promise<Reply> {
    const params = {
      message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: [{ text: message }] },
      configuration: { returnImmediately: true, taskPushNotificationConfig: { url } },
    };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SendMessage', params });
    return this.send('/a2a', { body, headers: { 'a2a-version': '1.0' } });
  }
}

/** Answers after a while, except to attackers. */
const startModel = () =>
  listen(async (received, response) => {
    if (received.method === 'GET') return void response.writeHead(404).end();
    const sent = JSON.stringify(await json(received));
    if (sent.includes(ATTACK)) return;
    await sleep(ANSWER_MS);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const part = (delta: object, finish_reason: string | null) =>
      `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
    response.end(`${part({ content: 'Hello.' }, null)}${part({}, 'stop')}data: [DONE]\n\n`);
  });

type Handler = (
  received: IncomingMessage,
  response: import('node:http').ServerResponse,
) => Promise<void> | void;

async function listen(handle: Handler): Promise<{ url: string; server: Server }> {
  const server = createServer((received, response) => void handle(received, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

/** What each key begins, one after the other, until it is stopped. */
async function attack(client: Client, dead: string, stopped: AbortSignal): Promise<void> {
  let session: string | undefined;
  const inSession = async () => {
    session ??= await client.openSession();
    return session;
  };
  const attempts = [
    async () =>
      client.hold(`/messages/${await inSession()}`, {
        body: JSON.stringify({ message: ATTACK, multitask: 'enqueue' }),
      }),
    async () =>
      client.hold(`/messages/${await client.openSession()}`, {
        body: JSON.stringify({ message: ATTACK }),
      }),
    () => client.hold('/files?name=a.bin', { type: 'application/octet-stream', start: 'a' }),
    () =>
      client.send('/files?name=b.bin', {
        type: 'application/octet-stream',
        body: Buffer.alloc(1e6, client.did),
      }),
    () => client.hold('/me/import', { type: 'application/zip', start: 'PK' }),
    () => client.send('/me/import', { body: JSON.stringify(LARGE) }),
    () => client.hold('/me/export', { method: 'GET' }),
    () => client.push('push', dead),
    async () =>
      client.hold(`/socket.io/?EIO=4&transport=websocket&sessionId=${await inSession()}`, {
        method: 'GET',
        headers: {
          connection: 'Upgrade',
          upgrade: 'websocket',
          'sec-websocket-version': '13',
          'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
        },
      }),
  ];
  let open = 0;
  await sleep(Math.random() * START_EVERY_MS);
  for (let n = 0; !stopped.aborted; n++) {
    const attempt = attempts[n % attempts.length];
    if (attempt && open < MAX_OPEN) {
      open += 1;
      void attempt()
        .catch(() => undefined)
        .finally(() => {
          open -= 1;
        });
    }
    await sleep(START_EVERY_MS);
  }
}

const LARGE = Array.from({ length: 200 }, (_, i) => ({
  title: `${i}`,
  create_time: 1,
  conversation_id: `c${i}`,
  mapping: {},
}));

class Measured {
  private readonly times = new Map<string, number[]>();
  private readonly failures = new Map<string, number>();

  async time(name: string, work: () => Promise<boolean>): Promise<void> {
    const startedAt = performance.now();
    const isDone = await work().catch(() => false);
    const list = this.times.get(name) ?? [];
    this.times.set(name, [...list, performance.now() - startedAt]);
    if (!isDone) this.failures.set(name, (this.failures.get(name) ?? 0) + 1);
  }

  print(): void {
    for (const [name, times] of this.times) {
      const [p50, p95, most] = [0.5, 0.95, 1].map((q) => quantile(times, q).toFixed(0));
      const failed = this.failures.get(name) ?? 0;
      console.log(
        `  ${name.padEnd(26)} ${`${times.length}`.padStart(5)} times, ${failed} failed, ${p50} / ${p95} / ${most} ms`,
      );
    }
  }

  p95(name: string): number {
    return quantile(this.times.get(name) ?? [], 0.95);
  }

  meets(name: string): boolean {
    const times = this.times.get(name) ?? [];
    return times.length > 0 && !this.failures.get(name) && Math.max(...times) <= LIMIT_MS;
  }
}

async function use(client: Client, name: string, measured: Measured, stopped: AbortSignal) {
  while (!stopped.aborted) {
    await measured.time(`${name}: turn`, async () => (await client.turn('Hi')) === 200);
    await sleep(TURN_EVERY_MS);
  }
}

/** Everything else that a user does. */
async function useOthers(
  client: Client,
  receiver: { readonly url: string; readonly pushed: Set<string> },
  measured: Measured,
  stopped: AbortSignal,
) {
  for (let n = 0; !stopped.aborted; n++) {
    const file = { type: 'application/octet-stream', body: Buffer.alloc(200_000, `${n}`) };
    await measured.time(
      'elsewhere: upload',
      async () => (await client.send('/files?name=a', file)).status === 200,
    );
    await measured.time(
      'elsewhere: export',
      async () => (await client.send('/me/export', { method: 'GET' })).status === 200,
    );
    await measured.time('elsewhere: import', () => importOne(client, n));
    await measured.time('elsewhere: push', async () => {
      const path = `/${n}`;
      await client.push('Hi', receiver.url + path);
      return waitFor(() => receiver.pushed.has(path));
    });
    await sleep(OTHERS_EVERY_MS);
  }
}

async function importOne(client: Client, n: number): Promise<boolean> {
  const conversation = { title: 'a', create_time: 1, mapping: {}, conversation_id: `own ${n}` };
  const { status, body } = await client.send('/me/import', {
    body: JSON.stringify([conversation]),
  });
  if (status !== 200) return false;
  return waitFor(async () => {
    const job = await client.send(`/me/import/${JSON.parse(body).id}`, { method: 'GET' });
    return JSON.parse(job.body).status === 'finished';
  });
}

async function waitFor(isDone: () => boolean | Promise<boolean>): Promise<boolean> {
  const deadline = performance.now() + 3 * LIMIT_MS;
  while (performance.now() < deadline) {
    if (await isDone()) return true;
    await sleep(50);
  }
  return false;
}

/** Users of the attackers' address who had turns long ago. */
function makeKnown(dataDir: string, clients: readonly Client[]): void {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'));
  const insert = database.prepare(
    `insert into usage_days (owner, day, session_id, model, turns, input_tokens, output_tokens, cached_tokens)
     values (?, '2020-01-01', 's', '', 1, 0, 0, 0)`,
  );
  for (const { did } of clients) insert.run(did);
  database.close();
}

async function main(): Promise<void> {
  console.log(`${KEYS} keys of one address for ${seconds} s, on ${describeMachine()}`);
  console.log('times: p50 / p95 / longest\n');
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-fairness-'));
  const model = await startModel();
  const dead = await listen(() => undefined);
  const refusing = await listen((received, response) => {
    received.resume();
    response.writeHead(429, { 'content-type': 'application/json' }).end('{}');
  });
  const pushed = new Set<string>();
  const receiver = await listen((received, response) => {
    pushed.add(received.url ?? '');
    received.resume();
    response.end();
  });
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: {
      ...{ PORT: '0', LOG_LEVEL: 'fatal', NODE_ENV: 'production', DATA_DIR: dataDir },
      ...{ MODEL: 'openai-compatible/stub', MODEL_BASE_URL: model.url, FEATURES: 'a2a=true' },
      OUTGOING_ALLOW: '127.0.0.0/8',
    },
  });
  const target = { url: host.url, did: host.did ?? '' };
  const round = async (name: string, attacked: { readonly url: string; readonly did: string }) => {
    const measured = new Measured();
    const stopped = AbortSignal.timeout(seconds * 1000);
    const keys = Array.from({ length: KEYS }, () => new Client(attacked, ATTACKER));
    const known = Array.from({ length: NEIGHBORS }, () => new Client(target, ATTACKER));
    makeKnown(dataDir, known);
    const user = new Client(target, ELSEWHERE);
    await Promise.all([
      ...keys.map((key) => attack(key, dead.url, stopped)),
      use(new Client(target, ELSEWHERE), 'elsewhere', measured, stopped),
      useOthers(user, { url: receiver.url, pushed }, measured, stopped),
      ...known.map((client) => use(client, 'known, same address', measured, stopped)),
    ]);
    console.log(`${name}:`);
    measured.print();
    pushed.clear();
    return measured;
  };
  try {
    const beside = await round('the generator fires at a server that refuses everything', {
      ...target,
      url: refusing.url,
    });
    const under = await round('the generator fires at the host', target);
    const ratio = under.p95('elsewhere: turn') / beside.p95('elsewhere: turn');
    const others = ['upload', 'import', 'export', 'push'].map((name) => `elsewhere: ${name}`);
    const isMet = ratio <= 2 && [...others, 'elsewhere: turn'].every((name) => under.meets(name));
    console.log(
      `\np95 of a turn elsewhere: ${ratio.toFixed(2)} times (≤ 2); all within 10 s: ${others.every((name) => under.meets(name))}`,
    );
    process.exitCode = isMet ? 0 : 1;
  } finally {
    await host.stop();
    for (const { server } of [model, dead, refusing, receiver]) {
      server.closeAllConnections();
      server.close();
    }
    rmSync(dataDir, { recursive: true, force: true });
  }
}

await main();
