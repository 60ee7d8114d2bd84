// What a turn costs: the host compared with bare floor servers on the same model.
// Rows are written to a real disk, which adds noise; TMPDIR=/dev/shm avoids it.
import { readLoad, reportFigures } from './support/figures.ts';
import {
  type LoadOptions,
  measureAll,
  measureFirstToken,
  measureStreams,
  measureThroughput,
} from './turn/measure.ts';
import {
  printFirstToken,
  printStreams,
  printThroughput,
  toFirstTokenFigures,
  toStreamFigures,
  toThroughputFigures,
} from './turn/report.ts';
import { type Servers, type Target, withServers } from './turn/targets.ts';

/** Short answers with all tokens at once: only the server takes time. */
const SHORT = { tokens: 20, gapMs: 0 };
const TOOL_CALL = { name: 'clock', input: '{"place":"Nairobi"}' };
/** A chat of ten turns, then a new one; host and floors read its history from the store and send it. */
const TURNS_PER_SESSION = 10;
const SHORT_LOADS = [
  { concurrency: 1, sessionsPerClient: 6 },
  { concurrency: 16, sessionsPerClient: 2 },
  { concurrency: 64, sessionsPerClient: 1 },
];
const SHORT_ROUNDS = 5;
/** Milliseconds of processor time of a turn that runs alone. */
const MOST_CPU_MS = 2.5;
const TOOL_ROUNDS = 3;

/** Long turns with staggered starts, to measure the delay rather than the wait for others. */
const STEADY = { tokens: 5, gapMs: 20 };
const STEADY_LOADS = [
  { concurrency: 1, sessionsPerClient: 1, turnsPerSession: 4 },
  { concurrency: 16, sessionsPerClient: 1, turnsPerSession: 3 },
];
const SPREAD_MS = STEADY.tokens * STEADY.gapMs;
const STEADY_ROUNDS = 6;

const LONG = { tokens: 100, gapMs: 20 };
const STREAMS = 200;
const STREAM_ROUNDS = 3;

async function warmUp(servers: readonly Target[], load: LoadOptions): Promise<void> {
  await measureAll(servers, [load], 1);
}

function buildThroughputRun(rounds: number) {
  const { tokens } = SHORT;
  const base = { kind: 'json', turnsPerSession: TURNS_PER_SESSION, tokens } as const;
  return async (servers: Servers) => {
    const { floor, leanFloor, durableFloor, host } = servers;
    const load = { ...base, concurrency: 64, sessionsPerClient: 2 };
    await warmUp([floor, leanFloor, durableFloor, host], load);
    const loads = SHORT_LOADS.map((load) => ({ ...base, ...load }));
    return measureThroughput(servers, loads, rounds);
  };
}

async function runFirstTokens(servers: Servers) {
  const base = { kind: 'stream', tokens: STEADY.tokens, spreadMs: SPREAD_MS } as const;
  const { floor, leanFloor, host } = servers;
  await warmUp([floor, leanFloor, host], {
    ...base,
    concurrency: 64,
    sessionsPerClient: 1,
    turnsPerSession: 8,
  });
  const loads = STEADY_LOADS.map((load) => ({ ...base, ...load }));
  return measureFirstToken(servers, loads, STEADY_ROUNDS);
}

async function runStreams(servers: Servers) {
  const once = { sessionsPerClient: 1, turnsPerSession: 1 };
  const load = { kind: 'stream', concurrency: STREAMS, tokens: LONG.tokens, ...once } as const;
  await warmUp([servers.floor, servers.host], load);
  return measureStreams(servers, load, STREAM_ROUNDS);
}

const start = performance.now();
console.log(`Load of the machine before: ${readLoad()}\n`);
const plain = await withServers(SHORT, buildThroughputRun(SHORT_ROUNDS));
printThroughput(`turns of ${SHORT.tokens} tokens`, plain);
const withTool = await withServers(
  { ...SHORT, toolCall: TOOL_CALL },
  buildThroughputRun(TOOL_ROUNDS),
);
printThroughput('the same with a tool call', withTool);
const first = await withServers(STEADY, runFirstTokens);
printFirstToken(first);
const many = await withServers(LONG, runStreams);
const streamTitle = `${STREAMS} streams of ${LONG.tokens} tokens, ${LONG.gapMs} ms apart`;
printStreams(streamTitle, many);
const seconds = Math.round((performance.now() - start) / 1000);
console.log(`Took ${seconds} s; load of the machine after: ${readLoad()}`);
await reportFigures([
  ...toThroughputFigures(`turns of ${SHORT.tokens} tokens`, plain, MOST_CPU_MS),
  ...toThroughputFigures('with a tool call', withTool),
  ...toFirstTokenFigures(first),
  ...toStreamFigures(streamTitle, many),
]);
