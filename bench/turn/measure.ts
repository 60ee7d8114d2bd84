import { setTimeout as sleep } from 'node:timers/promises';
import { median, quantile } from '../support/figures.ts';
import { type Posted, post, type Servers, type Session, type Target, TOKEN } from './targets.ts';

export interface Throughput {
  readonly name: string;
  readonly concurrency: number;
  readonly turnsPerSecond: number;
  /** Ratio of turns per second to each floor in the same round. */
  readonly toFloor: number;
  readonly toLeanFloor: number;
  readonly toDurableFloor: number;
  readonly cpuMs: number;
  readonly cpuToFloor: number;
  readonly cpuToLeanFloor: number;
  /** Share of one core that the load generator took: near 1, it is the limit. */
  readonly loadShare: number;
  readonly megabytes: number;
}

/** Turns per second and processor time of a turn, of the floors and of the host. */
export async function measureThroughput(
  { floor, leanFloor, durableFloor, host }: Servers,
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<Throughput[]> {
  const all = await measureAll([floor, leanFloor, durableFloor, host], loads, rounds);
  return all.map((series) => summarizeThroughput(series, all, { floor, leanFloor, durableFloor }));
}

function summarizeThroughput(
  { target, load, rounds }: Series,
  all: readonly Series[],
  { floor, leanFloor, durableFloor }: Pick<Servers, 'floor' | 'leanFloor' | 'durableFloor'>,
): Throughput {
  const compare = (other: Target, figure: (load: Load) => number) => {
    const others = findSeries(all, other, load).rounds;
    return median(rounds.map((one, i) => figure(one) / figure(others[i] as Load)));
  };
  const over = (figure: (load: Load) => number) => median(rounds.map(figure));
  return {
    name: target.name,
    concurrency: load.concurrency,
    turnsPerSecond: over(getRate),
    toFloor: compare(floor, getRate),
    toLeanFloor: compare(leanFloor, getRate),
    toDurableFloor: compare(durableFloor, getRate),
    cpuMs: over(getCpu),
    cpuToFloor: compare(floor, getCpu),
    cpuToLeanFloor: compare(leanFloor, getCpu),
    loadShare: over(({ ownShare }) => ownShare),
    megabytes: target.server.rssMegabytes(),
  };
}

const getRate = ({ answers, seconds }: Load) => answers.length / seconds;
const getCpu = ({ cpuMsPerTurn }: Load) => cpuMsPerTurn;

export interface FirstToken {
  readonly concurrency: number;
  readonly share: number;
  /** Milliseconds of the model, read directly. */
  readonly own: number;
  /** Milliseconds each server adds to that. */
  readonly floor: number;
  readonly leanFloor: number;
  readonly host: number;
}

/** Time to the first token: the model's own, and what floors and host add to it. */
export async function measureFirstToken(
  servers: Servers,
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<FirstToken[]> {
  const { stub, floor, leanFloor, host } = servers;
  const all = await measureAll([stub, floor, leanFloor, host], loads, rounds);
  const shares = [0.5, 0.95];
  return loads.flatMap((load) =>
    shares.map((share) => summarizeFirstToken(servers, load, { all, share })),
  );
}

function summarizeFirstToken(
  { stub, floor, leanFloor, host }: Servers,
  load: LoadOptions,
  { all, share }: { all: readonly Series[]; share: number },
): FirstToken {
  const measureDelay = (target: Target) => medianDelay(findSeries(all, target, load).rounds, share);
  const own = measureDelay(stub);
  return {
    concurrency: load.concurrency,
    share,
    own,
    floor: measureDelay(floor) - own,
    leanFloor: measureDelay(leanFloor) - own,
    host: measureDelay(host) - own,
  };
}

/** Quantiles per round first, so that a moment of other load affects one round only. */
function medianDelay(rounds: readonly Load[], share: number): number {
  const measureRound = ({ answers }: Load) =>
    quantile(
      answers.map(({ firstTokenMs }) => firstTokenMs),
      share,
    );
  return median(rounds.map(measureRound));
}

export interface Streams {
  readonly name: string;
  readonly seconds: number;
  /** Ratio of its time to the model's own in the same round. */
  readonly toOwn: number;
  readonly bytesPerToken: number;
  /** Processor time of one stream. */
  readonly cpuMs: number;
  readonly loadShare: number;
  readonly megabytes: number;
}

/** Many streams at once: of the model read directly, of the floor and of the host. */
export async function measureStreams(
  { stub, floor, host }: Servers,
  load: LoadOptions,
  rounds: number,
): Promise<Streams[]> {
  const all = await measureAll([stub, floor, host], [load], rounds);
  const own = findSeries(all, stub, load).rounds;
  return all.map((series) => summarizeStreams(series, own));
}

function summarizeStreams({ target, rounds }: Series, own: readonly Load[]): Streams {
  const over = (figure: (load: Load) => number) => median(rounds.map(figure));
  return {
    name: target.name,
    seconds: over(({ seconds }) => seconds),
    toOwn: median(rounds.map(({ seconds }, i) => seconds / (own[i]?.seconds ?? 0))),
    bytesPerToken: over(bytesPerToken),
    cpuMs: over(({ cpuMsPerTurn }) => cpuMsPerTurn),
    loadShare: over(({ ownShare }) => ownShare),
    megabytes: target.server.rssMegabytes(),
  };
}

function bytesPerToken({ answers, tokens }: Load): number {
  return answers.reduce((sum, { bytes }) => sum + bytes, 0) / tokens;
}

/** The rounds of one target under one load. */
export interface Series {
  readonly target: Target;
  readonly load: LoadOptions;
  readonly rounds: readonly Load[];
}

/** Runs every load on every target in each round, in alternating order, so that other load on the machine affects all of them. */
export async function measureAll(
  targets: readonly Target[],
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<Series[]> {
  const series = loads.flatMap((load) =>
    targets.map((target) => ({ target, load, rounds: [] as Load[] })),
  );
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? series : series.toReversed();
    for (const { target, load, rounds } of order) rounds.push(await sendTurns(target, load));
  }
  return series;
}

/** The series of one target under one load. */
function findSeries(all: readonly Series[], target: Target, load: LoadOptions): Series {
  const found = all.find((one) => one.target === target && one.load === load);
  if (!found) throw new Error(`${target.name} was not measured`);
  return found;
}

export interface LoadOptions {
  readonly kind: 'json' | 'stream';
  /** Clients at once, each in its own session. */
  readonly concurrency: number;
  /** Sessions per client, so that all clients end at about the same time. */
  readonly sessionsPerClient: number;
  /** Turns per session; all servers read and send its whole history. */
  readonly turnsPerSession: number;
  /** Time over which the clients start one after the other; by default all start at once. */
  readonly spreadMs?: number;
  /** Tokens of every answer. */
  readonly tokens: number;
}

export interface Load {
  readonly seconds: number;
  readonly answers: readonly Posted[];
  /** Of all answers. */
  readonly tokens: number;
  /** Processor time of the server, per turn. */
  readonly cpuMsPerTurn: number;
  /** Share of one core that the load generator took. */
  readonly ownShare: number;
}

const MESSAGE = 'What does the almanac say about the weather on the coast tomorrow?';

/** Sends turns, one at a time in each session, and measures the time from the first to the last. */
async function sendTurns(target: Target, options: LoadOptions): Promise<Load> {
  const { concurrency, sessionsPerClient, turnsPerSession } = options;
  const sessions = await openSessions(target, concurrency * sessionsPerClient);
  const answers: Posted[] = [];
  const worker = async (number: number) => {
    if (options.spreadMs) await sleep((number / concurrency) * options.spreadMs);
    for (let session = sessions.pop(); session; session = sessions.pop()) {
      for (let turn = 0; turn < turnsPerSession; turn++)
        answers.push(await sendTurn(target, session, options));
    }
  };
  const cpu = target.server.cpuMs();
  const own = process.cpuUsage();
  const start = performance.now();
  await Promise.all(Array.from({ length: concurrency }, (_, number) => worker(number)));
  const ms = performance.now() - start;
  const { user, system } = process.cpuUsage(own);
  return {
    seconds: ms / 1000,
    answers,
    tokens: answers.length * options.tokens,
    cpuMsPerTurn: (target.server.cpuMs() - cpu) / answers.length,
    ownShare: (user + system) / 1000 / ms,
  };
}

async function openSessions(target: Target, count: number): Promise<Session[]> {
  const sessions: Session[] = [];
  while (sessions.length < count) {
    const some = Math.min(50, count - sessions.length);
    sessions.push(...(await Promise.all(Array.from({ length: some }, () => target.openSession()))));
  }
  return sessions;
}

async function sendTurn(target: Target, session: Session, options: LoadOptions): Promise<Posted> {
  const body = target.buildBody(MESSAGE, options.kind);
  const answer = await post({ url: target.server.url, ...session, body });
  const tokens = answer.text.split(TOKEN).length - 1;
  if (tokens !== options.tokens)
    throw new Error(`${target.name} answered ${tokens} tokens instead of ${options.tokens}`);
  return answer;
}
