// What a turn costs: the host beside bare floor servers on the same model, every figure in one run.
// Rows go to a real disk, whose other users are part of the noise; TMPDIR=/dev/shm leaves the disk out.
import { loadavg } from 'node:os';
import { tell } from '../parts/figure.ts';
import { firstTokenFigures, streamFigures, throughputFigures } from './figures.ts';
import type { LoadOptions } from './load/send-turns.ts';
import type { Target } from './load/target.ts';
import { measureFirstToken } from './measure/first-token.ts';
import { sideBySide } from './measure/side-by-side.ts';
import { measureStreams } from './measure/streams.ts';
import { measureThroughput } from './measure/throughput.ts';
import { printFirstToken, printStreams, printThroughput } from './report.ts';
import { inScene, type Scene } from './scene.ts';

/** Short answers, all tokens at once: the server is all that takes time. */
const SHORT = { tokens: 20, gapMs: 0 };
const TOOL_CALL = { name: 'clock', input: '{"place":"Nairobi"}' };
/** A chat of ten turns, then a new one; host and floors read all of it from the store and send it. */
const TURNS_PER_SESSION = 10;
const SHORT_LOADS = [
  { concurrency: 1, sessionsPerClient: 6 },
  { concurrency: 16, sessionsPerClient: 2 },
  { concurrency: 64, sessionsPerClient: 1 },
];
const SHORT_ROUNDS = 5;
const TOOL_ROUNDS = 3;

/** Turns that last, begun one after the other: what is measured is the delay, not the wait for others. */
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

/** Brings servers to the speed they keep. */
async function warmUp(servers: readonly Target[], load: LoadOptions): Promise<void> {
  await sideBySide(servers, [load], 1);
}

function throughputOver(rounds: number) {
  const { tokens } = SHORT;
  const base = { kind: 'json', turnsPerSession: TURNS_PER_SESSION, tokens } as const;
  return async (scene: Scene) => {
    const { floor, leanFloor, host } = scene;
    await warmUp([floor, leanFloor, host], { ...base, concurrency: 64, sessionsPerClient: 2 });
    const loads = SHORT_LOADS.map((load) => ({ ...base, ...load }));
    return measureThroughput(scene, loads, rounds);
  };
}

async function firstTokens(scene: Scene) {
  const base = { kind: 'stream', tokens: STEADY.tokens, spreadMs: SPREAD_MS } as const;
  const { floor, leanFloor, host } = scene;
  await warmUp([floor, leanFloor, host], {
    ...base,
    concurrency: 64,
    sessionsPerClient: 1,
    turnsPerSession: 8,
  });
  const loads = STEADY_LOADS.map((load) => ({ ...base, ...load }));
  return measureFirstToken(scene, loads, STEADY_ROUNDS);
}

async function streams(scene: Scene) {
  const once = { sessionsPerClient: 1, turnsPerSession: 1 };
  const load = { kind: 'stream', concurrency: STREAMS, tokens: LONG.tokens, ...once } as const;
  await warmUp([scene.floor, scene.host], load);
  return measureStreams(scene, load, STREAM_ROUNDS);
}

const loadNow = () => loadavg()[0]?.toFixed(1);

const start = performance.now();
console.log(`Load of the machine before: ${loadNow()}\n`);
const plain = await inScene(SHORT, throughputOver(SHORT_ROUNDS));
printThroughput(`turns of ${SHORT.tokens} tokens`, plain);
const withTool = await inScene({ ...SHORT, toolCall: TOOL_CALL }, throughputOver(TOOL_ROUNDS));
printThroughput('the same with a tool call', withTool);
const first = await inScene(STEADY, firstTokens);
printFirstToken(first);
const many = await inScene(LONG, streams);
const streamTitle = `${STREAMS} streams of ${LONG.tokens} tokens, ${LONG.gapMs} ms apart`;
printStreams(streamTitle, many);
const seconds = Math.round((performance.now() - start) / 1000);
console.log(`Took ${seconds} s; load of the machine after: ${loadNow()}`);
await tell([
  ...throughputFigures(`turns of ${SHORT.tokens} tokens`, plain),
  ...throughputFigures('with a tool call', withTool),
  ...firstTokenFigures(first),
  ...streamFigures(streamTitle, many),
]);
