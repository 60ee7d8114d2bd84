import { setTimeout as sleep } from 'node:timers/promises';
import { atMost, type Figure, median } from '../support/figures.ts';
import { post } from '../turn/targets.ts';
import { BenchCluster, type BenchSession } from './hosts.ts';

const SIZES = [1, 2, 3];
const SHORT = { tokens: 20, gapMs: 0 };
const CLIENTS = 24;
const TURNS_PER_CLIENT = 15;

const STEADY = { tokens: 50, gapMs: 20 };
const STREAMS = 150;

const ENDLESS = { tokens: 1_000_000, gapMs: 20 };
const SAMPLES = 30;
const FRAMES = 200;
const KILLED_RUNS = 20;

const MOST_ABORT_MS = 50;
const MOST_LAG_MS = 10;
const MOST_CLOSE_MS = 1_000;

/** Everything that is measured with running hosts. */
export async function measureCluster(databaseUrl: string): Promise<Figure[]> {
  const turns = await measureSizes(databaseUrl, SHORT, measureTurns);
  console.log(
    `Turns/s of ${SIZES.join(', ')} hosts: ${turns.map((rate) => rate.toFixed(0)).join(', ')}`,
  );
  const streams = await measureSizes(databaseUrl, STEADY, measureStreams);
  const [oneTurn = 1] = turns;
  const [oneStream = 1] = streams;
  const figures: Figure[] = SIZES.slice(1).flatMap((size, i) => [
    {
      name: `turns, ${size} hosts`,
      ours: `${turns[i + 1]?.toFixed(0)}/s`,
      beside: `1 host: ${oneTurn.toFixed(0)}/s`,
      ratio: (turns[i + 1] ?? 0) / oneTurn,
    },
    {
      name: `${STREAMS} streams at once, ${size} hosts: time, compared with the model alone`,
      ours: `${streams[i + 1]?.toFixed(2)} ×`,
      beside: `1 host: ${oneStream.toFixed(2)} ×`,
      ratio: (streams[i + 1] ?? 0) / oneStream,
    },
  ]);
  const cluster = await BenchCluster.start(databaseUrl, { count: 3, model: ENDLESS });
  try {
    const abortMs = await measureAborts(cluster);
    const lagMs = await measureFrameLag(cluster);
    const closeMs = await measureDeath(cluster);
    return [
      ...figures,
      toDelay('abort by another host, until it is stored, p50', abortMs, MOST_ABORT_MS),
      toDelay('frames on another host, behind those on its own, p50', lagMs, MOST_LAG_MS),
      toDelay(`all ${KILLED_RUNS} turns of a killed host closed`, closeMs, MOST_CLOSE_MS),
    ];
  } finally {
    await cluster.stop();
  }
}

const toDelay = (name: string, ms: number, most: number): Figure => ({
  name,
  ours: `${ms.toFixed(1)} ms`,
  target: atMost(most, ms, ' ms'),
});

async function measureSizes(
  databaseUrl: string,
  model: typeof SHORT,
  measure: (cluster: BenchCluster) => Promise<number>,
): Promise<number[]> {
  const results: number[] = [];
  for (const count of SIZES) {
    const cluster = await BenchCluster.start(databaseUrl, { count, model });
    try {
      // The first time warms up.
      await measure(cluster);
      results.push(await measure(cluster));
    } finally {
      await cluster.stop();
    }
  }
  return results;
}

/** Turns per second; each turn of a session is sent to another host than the one before. */
async function measureTurns(cluster: BenchCluster): Promise<number> {
  const sessions = await openSessions(cluster, CLIENTS);
  const body = JSON.stringify({ message: 'What does the almanac say?' });
  const start = performance.now();
  await Promise.all(
    sessions.map(async ({ sessionId, headers }, client) => {
      for (let turn = 0; turn < TURNS_PER_CLIENT; turn++) {
        const url = cluster.url(client + turn);
        await post({ url, path: `/messages/${sessionId}`, headers, body });
      }
    }),
  );
  return (CLIENTS * TURNS_PER_CLIENT * 1000) / (performance.now() - start);
}

/** How many times longer than the model many streams at once take. */
async function measureStreams(cluster: BenchCluster): Promise<number> {
  const sessions = await openSessions(cluster, STREAMS);
  const body = JSON.stringify({ message: 'What does the almanac say?', stream: true });
  const start = performance.now();
  await Promise.all(
    sessions.map(({ sessionId, headers }, client) =>
      post({ url: cluster.url(client), path: `/messages/${sessionId}`, headers, body }),
    ),
  );
  return (performance.now() - start) / (STEADY.tokens * STEADY.gapMs);
}

async function openSessions(cluster: BenchCluster, count: number): Promise<BenchSession[]> {
  const sessions: BenchSession[] = [];
  while (sessions.length < count) sessions.push(await cluster.openSession());
  return sessions;
}

/** Milliseconds from the request until a third host reads the status from the database. */
async function measureAborts(cluster: BenchCluster): Promise<number> {
  const delays: number[] = [];
  for (let i = 0; i < SAMPLES; i++) {
    const session = await cluster.openSession();
    const live = await startStream(cluster.url(i), session);
    await live.next();
    const start = performance.now();
    const body = JSON.stringify({ sessionId: session.sessionId });
    const path = '/messages/abort';
    const aborted = post({ url: cluster.url(i + 1), path, headers: session.headers, body });
    await untilStatus(cluster.url(i + 2), session, (status) => status === 'aborted');
    delays.push(performance.now() - start);
    await aborted;
    await live.return();
  }
  return median(delays);
}

/** Longer than any host may take, so that a benchmark fails instead of waiting forever. */
const WAIT_MS = 60_000;

async function untilStatus(
  url: string,
  session: BenchSession,
  isExpected: (status: string) => boolean,
): Promise<void> {
  const deadline = performance.now() + WAIT_MS;
  for (;;) {
    const status = await readStatus(url, session);
    if (isExpected(status)) return;
    if (performance.now() > deadline) throw new Error(`The turn is still ${status}`);
    await sleep(1);
  }
}

async function readStatus(url: string, { sessionId, headers }: BenchSession): Promise<string> {
  const response = await fetch(`${url}/sessions/${sessionId}/run`, { headers });
  const { run } = (await response.json()) as { run: { status: string } };
  return run.status;
}

/** Milliseconds between the arrival of a frame from the host of the turn and from another one. */
async function measureFrameLag(cluster: BenchCluster): Promise<number> {
  const session = await cluster.openSession();
  const live = await startStream(cluster.url(0), session);
  const { value: first } = await live.next();
  const remote = await readFrames(`${cluster.url(1)}/runs/${first?.runId}`, session);
  const arrivals = new Map<number, number>();
  const lags: number[] = [];
  const note = (id: number, at: number) => {
    const other = arrivals.get(id);
    if (other === undefined) arrivals.set(id, at);
    else lags.push(Math.abs(at - other));
  };
  const follow = async (frames: AsyncIterator<{ id: number; at: number }>) => {
    while (lags.length < FRAMES) {
      const { value, done } = await frames.next();
      if (done) throw new Error('The stream of the turn has ended');
      note(value.id, value.at);
    }
  };
  await Promise.all([follow(live), follow(remote)]);
  await Promise.all([live.return(), remote.return()]);
  // The first ones were replayed, not sent as they came.
  return median(lags.slice(FRAMES / 2));
}

/** Milliseconds from kill -9 until another host shows every turn of the dead host as ended. */
async function measureDeath(cluster: BenchCluster): Promise<number> {
  const sessions = await openSessions(cluster, KILLED_RUNS);
  for (const session of sessions) await (await startStream(cluster.url(2), session)).next();
  const start = performance.now();
  process.kill(cluster.hosts[2]?.pid ?? 0, 'SIGKILL');
  for (const session of sessions)
    await untilStatus(cluster.url(0), session, (status) => status !== 'running');
  return performance.now() - start;
}

/** A frame and when it arrived. */
interface ArrivedFrame {
  readonly id: number;
  readonly at: number;
  readonly runId: string;
}

/** Starts a streamed turn. */
function startStream(
  url: string,
  { sessionId, headers }: BenchSession,
): Promise<AsyncGenerator<ArrivedFrame, void, void>> {
  return openStream(`${url}/messages/${sessionId}`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ message: 'What does the almanac say?', stream: true }),
  });
}

/** Reads the frames of a run. */
function readFrames(
  address: string,
  { headers }: BenchSession,
): Promise<AsyncGenerator<ArrivedFrame, void, void>> {
  return openStream(address, { headers });
}

async function openStream(address: string, init: RequestInit) {
  const response = await fetch(address, init);
  if (!response.ok || !response.body)
    throw new Error(`${address}: ${response.status} ${await response.text()}`);
  return parseFrames(response.body, response.headers.get('x-run-id') ?? '');
}

async function* parseFrames(body: ReadableStream<Uint8Array>, runId: string) {
  const decoder = new TextDecoder();
  let text = '';
  try {
    for await (const chunk of body) {
      const at = performance.now();
      text += decoder.decode(chunk, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const [, id] = /^id: (\d+)$/m.exec(block) ?? [];
        if (id) yield { id: Number(id), at, runId };
      }
    }
  } catch {
    // The host was killed, or the client left.
  }
}
