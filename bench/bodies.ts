// What the worst JSON bodies cost the host, for each request that their caller is charged, compared with opening a session; and how
// long others wait for `/health` meanwhile.
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  atMost,
  describeMachine,
  type Figure,
  formatFigures,
  median,
  quantile,
  reportFigures,
} from './support/figures.ts';
import { mintTokens, type ServerProcess, startServer } from './support/server-process.ts';
import { buildHostEnv } from './turn/targets.ts';

/** High enough that the share of one body does not limit its cost; low enough that little is refilled meanwhile. */
const LIMIT = 6000;
const ROUNDS = 3;
const BODIES = 10;
const SESSIONS = 200;
const BURST = 50;
const BURST_KEYS = 10;
const MOST_WAIT_MS = 200;
const MOST_RATIO = 3;
const KB = 1024;

interface Sent {
  readonly path: string;
  readonly body: string;
}

const count = <T>(length: number, make: (i: number) => T): T[] =>
  Array.from({ length }, (_, i) => make(i));
const names = (length: number, prefix = 'k') =>
  `{${count(length, (i) => `"${prefix}${i}":1`).join()}}`;
const message = (metadata: string): Sent => ({
  path: `/messages/${randomUUID()}`,
  body: `{"message":"x","metadata":${metadata}}`,
});
const mcp = (value: string): Sent => ({
  path: '/mcp',
  body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":${value}}}`,
});

/** Ends before a turn begins, so that only the body is measured. */
const WORST: Readonly<Record<string, () => Sent>> = {
  '70,000 names in a session': () => ({ path: '/sessions', body: names(70_000) }),
  '4,900 names in a session': () => ({ path: '/sessions', body: names(4_900) }),
  '19,000 strings in a session': () => ({
    path: '/sessions',
    body: `{"title":[${count(19_000, (i) => `"s${i}"`).join()}]}`,
  }),
  '900 kB of [ in a session': () => ({ path: '/sessions', body: '['.repeat(900 * KB) }),
  '900 kB of one string': () => ({
    path: '/sessions',
    body: `{"title":"${'x'.repeat(900 * KB)}"}`,
  }),
  '70,000 names in a message': () => message(names(70_000)),
  '19,900 names in a message': () => message(names(19_900)),
  '44,900 names deep in a message': () => message(`{"a":{"b":{"c":${names(44_900)}}}}`),
  '19,900 long names in a message': () => message(names(19_900, 'x'.repeat(35))),
  '19,900 objects of one name': () =>
    message(`{"a":[${count(19_900, (i) => `{"k${i}":1}`).join()}]}`),
  '99,000 strings in a message': () => message(`{"a":[${count(99_000, (i) => `"s${i}"`).join()}]}`),
  '49,000 lists of lists': () => message(`{"a":[${count(49_000, () => '[[]]').join()}]}`),
  '19,900 names for /mcp': () => mcp(names(19_900)),
  '99,000 numbers for /mcp': () => mcp(`{"a":[${count(99_000, (i) => i).join()}]}`),
  '9,900 messages for /v1': () => ({
    path: '/v1/chat/completions',
    body: `{"model":"none","messages":[${count(9_900, (i) => `{"role":"user","content":"c${i}"}`).join()}]}`,
  }),
  '19,900 names for /ui': () => ({
    path: '/ui/chat',
    body: `{"id":"x","trigger":"submit-message","messages":[${names(19_900)}]}`,
  }),
  '19,900 names for /v2': () => ({
    path: '/v2/agent/run',
    body: `{"threadId":"t","runId":"r","tools":[],"context":[],"messages":[],"state":${names(19_900)}}`,
  }),
  '19,900 names for /a2a': () => ({
    path: '/a2a',
    body: `{"jsonrpc":"2.0","id":1,"method":"None","params":${names(19_900)}}`,
  }),
};

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bodies-'));
  const model = await startServer(new URL('./servers/model.ts', import.meta.url), {
    args: [JSON.stringify({ tokens: 1, gapMs: 0 })],
  });
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: { ...buildHostEnv(model, dataDir), RATE_LIMIT_PER_MINUTE: String(LIMIT) },
  });
  try {
    const figures = [...(await measureCharges(host)), await measureHealth(host)];
    console.log(`${formatFigures('bodies', figures)}\n\nMeasured on ${describeMachine()}.`);
    await reportFigures(figures);
    if (figures.some(({ target }) => target?.isMet === false)) process.exitCode = 1;
  } finally {
    await host.stop();
    await model.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/** Processor time for each charged request; the first round only warms up. */
async function measureCharges(host: ServerProcess): Promise<Figure[]> {
  const times = new Map<string, { own: number; plain: number; charged: number }[]>();
  for (let round = 0; round <= ROUNDS; round++) {
    const plain = await measure(host, SESSIONS, () => ({ path: '/sessions', body: '{}' }));
    for (const [name, make] of Object.entries(WORST)) {
      const own = await measure(host, BODIES, make);
      const { charged } = own;
      const line = { own: own.ms / charged, plain: plain.ms / plain.charged, charged };
      if (round > 0) times.set(name, [...(times.get(name) ?? []), line]);
    }
  }
  return [...times].map(([name, lines]) => {
    const ratio = median(lines.map(({ own, plain }) => own / plain));
    return {
      name: `${name}: processor for each of ${median(lines.map((l) => l.charged))} charged requests`,
      ours: `${median(lines.map(({ own }) => own)).toFixed(2)} ms`,
      beside: `POST /sessions: ${median(lines.map(({ plain }) => plain)).toFixed(2)} ms`,
      ratio,
      target: atMost(MOST_RATIO, ratio),
    };
  });
}

/** Milliseconds of processor time for a request, and what it is charged. */
async function measure(host: ServerProcess, times: number, make: () => Sent) {
  // A key that was seen is not verified again, and its limit is full again.
  const tokens = mintTokens(Math.min(times, BODIES), host.did ?? '');
  for (const token of tokens) await send(host, token, { path: '/sessions', body: '{}' });
  const charges: number[] = [];
  const before = host.cpuMs();
  for (let i = 0; i < times; i++) {
    const remaining = await send(host, tokens[i % tokens.length] ?? '', make());
    charges.push(LIMIT - remaining);
  }
  return { ms: (host.cpuMs() - before) / times, charged: Math.max(1, median(charges)) };
}

/** Sends a body and resolves to what its key may send now. */
function send(host: ServerProcess, token: string, { path, body }: Sent): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${host.url}${path}`,
      {
        method: 'POST',
        headers: {
          ...{ authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' },
          ...{ 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
          ...{ accept: 'application/json, text/event-stream', 'a2a-version': '1.0' },
        },
      },
      (reply) => {
        reply.resume();
        reply.once('end', () => resolve(Number(reply.headers['ratelimit-remaining'] ?? LIMIT)));
      },
    );
    sent.once('error', reject);
    sent.end(body);
  });
}

/** How much longer `/health` takes while all the worst bodies arrive at once. */
async function measureHealth(host: ServerProcess): Promise<Figure> {
  const idle = await watchHealth(host, sleep(2000));
  const tokens = mintTokens(BURST_KEYS, host.did ?? '');
  const makers = Object.values(WORST);
  const bodies = count(BURST, (i) => (makers[i % makers.length] as () => Sent)());
  const busy = await watchHealth(
    host,
    Promise.all(bodies.map((body, i) => send(host, tokens[i % BURST_KEYS] ?? '', body))),
  );
  const waitMs = Math.max(...busy) - Math.max(...idle);
  return {
    name: `longest wait for /health during ${BURST} bodies at once`,
    ours: `${Math.max(...busy).toFixed(0)} ms (p50 ${quantile(busy, 0.5).toFixed(0)})`,
    beside: `idle: ${Math.max(...idle).toFixed(0)} ms`,
    target: atMost(MOST_WAIT_MS, waitMs, ' ms more'),
  };
}

/** Milliseconds that each request took until the work had ended. */
async function watchHealth(host: ServerProcess, work: Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  let isOver = false;
  const ended = work.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    const startedAt = performance.now();
    await (await fetch(`${host.url}/health`)).text();
    times.push(performance.now() - startedAt);
    await sleep(5);
  }
  await ended;
  return times;
}

await main();
