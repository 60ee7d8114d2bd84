import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { scroll } from './support/page-tools.js';
import { RestartablePostgres } from './support/restartable-postgres.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { joinSession, type SessionSocket } from './support/session-socket.js';
import { openSession, type SseFrame, SseStream } from './support/stream.js';
import { TestUser } from './support/user.js';

const ROUNDS = scale(20, 1);
const CHATS = 3;
const RETRY_MS = 100;
const END = { timeout: 120_000 };

let postgres: RestartablePostgres;
let hosts: ClusterHost[];
let balancer: RoundRobinProxy;
beforeAll(async () => {
  postgres = await RestartablePostgres.start();
  hosts = await startHosts(3, { env: { DATABASE_URL: postgres.url } });
  balancer = await startRoundRobinProxy(hosts.map(({ url }) => url));
});
afterAll(async () => {
  balancer?.close();
  await Promise.all((hosts ?? []).map((host) => host.close()));
  await postgres?.stop();
});

/** A run that has ended, with all of its frames. */
interface EndedRun {
  readonly turn: number;
  readonly frames: readonly SseFrame[];
}

/** A user whose page runs a browser tool in every turn, through a load balancer. */
class PageChat {
  readonly runs: EndedRun[] = [];
  readonly wrong: string[] = [];
  /** The positions of the events that the page has received. */
  readonly seen: string[] = [];
  private turn = 0;

  private constructor(
    private readonly user: TestUser,
    private readonly sessionId: string,
    { socket }: SessionSocket,
  ) {
    const calls = new Set<string>();
    socket.onAny((name: string, data: { toolCallId: string }, position?: string) => {
      if (name === 'connected' || position === undefined) return;
      this.note(position);
      if (name !== 'browser_tool_call') return;
      if (calls.has(data.toolCallId)) this.wrong.push(`called twice: ${data.toolCallId}`);
      calls.add(data.toolCallId);
      socket.emit('tool_result', { toolCallId: data.toolCallId, result: 'done' });
    });
    // Socket.IO does not connect again by itself if a host refuses it, such as during an outage.
    socket.on('connect_error', () => {
      if (!socket.active) setTimeout(() => socket.connect(), RETRY_MS);
    });
  }

  static async open(user: TestUser, transport: 'polling' | 'websocket'): Promise<PageChat> {
    const sessionId = await openSession(user);
    const auth = (send: (auth: object) => void) => send({ invocation: user.mint() });
    const times = { reconnectionDelay: RETRY_MS, reconnectionDelayMax: 1_000 };
    const options = { auth, ...times, transports: [transport] };
    return new PageChat(user, sessionId, await joinSession(user, sessionId, options));
  }

  /** Sends a message and reads its run to the end, on any host. */
  async sendNext(): Promise<void> {
    this.turn += 1;
    const key = { 'idempotency-key': randomUUID() };
    const body = { message: 'use scroll {"by":3}', stream: true, tools: [scroll] };
    const first = await this.repeat('POST', `/messages/${this.sessionId}`, key, body);
    const live = new SseStream(first);
    await live.toEnd().catch(() => undefined);
    const frames = [...live.frames];
    while (frames.at(-1)?.event !== 'done') {
      const path = `/runs/${live.runId}?after=${frames.at(-1)?.id ?? 0}`;
      const rest = new SseStream(await this.repeat('GET', path));
      await rest.toEnd().catch(() => undefined);
      frames.push(...rest.frames);
    }
    this.runs.push({ turn: this.turn, frames });
  }

  /** Stored events that the page has not received. */
  async findMissing(): Promise<string[]> {
    const missing: string[] = [];
    for (const { turn, frames } of this.runs) {
      const { runId } = frames.at(-1)?.data ?? {};
      const stored = new SseStream(await this.repeat('GET', `/runs/${runId}?after=0`));
      for (const { event, id } of await stored.toEnd())
        if (/tool_call$/.test(event) && !this.seen.includes(`${turn}.${id}`))
          missing.push(`${turn}.${id} ${event}`);
    }
    return missing;
  }

  private note(position: string): void {
    const [before, now] = [this.seen.at(-1) ?? '0.0', position].map((each) => each.split('.'));
    const turns = Number(now?.[0]) - Number(before?.[0]);
    if (turns < 0 || (turns === 0 && Number(now?.[1]) <= Number(before?.[1])))
      this.wrong.push(`${position} after ${this.seen.at(-1)}`);
    this.seen.push(position);
  }

  /** Repeats a request until a host accepts it. */
  private async repeat(
    method: string,
    path: string,
    headers: Record<string, string> = {},
    body?: object,
  ): Promise<Response> {
    for (;;) {
      const response = await fetch(this.user.host.url + path, {
        method,
        headers: { ...this.user.headers, 'content-type': 'application/json', ...headers },
        ...(body && { body: JSON.stringify(body) }),
      }).catch(() => undefined);
      if (response?.ok) return response;
      const isAway = response?.status === 503 && response.headers.has('retry-after');
      if (response && !isAway) this.wrong.push(`${path}: ${response.status}`);
      await sleep(RETRY_MS);
    }
  }
}

it('kills and outages of PostgreSQL lose, repeat and reorder no event of sockets, and page calls run once', {
  timeout: 300_000 + ROUNDS * 60_000,
}, async () => {
  const did = hosts[0]?.did ?? '';
  const users = Array.from({ length: CHATS }, () => new TestUser({ url: balancer.url, did }));
  const transport = (i: number) => (i === 0 ? 'polling' : 'websocket');
  const chats = await Promise.all(users.map((user, i) => PageChat.open(user, transport(i))));
  let isOver = false;
  const chatting = chats.map(async (chat) => {
    while (!isOver) await chat.sendNext();
  });
  for (let round = 0; round < ROUNDS; round++) {
    const victim = hosts[round % hosts.length] as ClusterHost;
    await sleep(1_000 + ((round * 311) % 1_000));
    await victim.kill();
    await victim.start();
    await sleep((round * 613) % 1_000);
    await postgres.crash();
    await sleep(500 + ((round * 977) % 2_000));
    await postgres.freeze(round % 5 === 4 ? 12_000 : 3_000);
  }
  const before = chats.map(({ runs }) => runs.length);
  const progress = () => chats.every(({ runs }, i) => runs.length > (before[i] ?? 0) + 1);
  await expect.poll(progress, END).toBe(true);
  isOver = true;
  await Promise.all(chatting);
  for (const chat of chats) await expect.poll(() => chat.findMissing(), END).toEqual([]);
  expect(chats.flatMap(({ wrong }) => wrong)).toEqual([]);
  // Otherwise nothing was tested.
  expect(chats.flatMap(({ seen }) => seen).length).toBeGreaterThan(CHATS * 6);
});
