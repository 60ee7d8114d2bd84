// How soon the host answers and what it takes in memory when idle, beside a bare server of node:http in the same rounds.
import { loadavg } from 'node:os';
import { atMost, type Figure, tell } from '../parts/figure.ts';
import { figureTable } from '../parts/figure-table.ts';
import { median } from '../parts/median.ts';
import { type Command, type Launch, launch } from './launch.ts';

const ROUNDS = 7;
const MOST_MS = 700;
const MOST_MEGABYTES = 130;

const HELLO = `require('node:http')
  .createServer((_, response) => response.end('{"status":"ok"}'))
  .listen(process.env.PORT, '127.0.0.1')`;

const node = process.execPath;
const BARE: Command = { name: 'bare node:http', command: node, args: ['-e', HELLO] };
const HOST: Command = { name: 'host', command: node, args: ['packages/host/dist/bundle/main.js'] };
const NPM_START: Command = {
  name: '`npm start`: npm, host and gateway',
  command: 'npm',
  args: ['start', '--silent'],
};
const COMMANDS = [BARE, HOST, NPM_START];

interface Series {
  readonly command: Command;
  readonly rounds: Launch[];
}

/** Every command in every round, so that whatever else the machine does hits all alike. */
async function launchAll(): Promise<readonly Series[]> {
  const all = COMMANDS.map((command) => ({ command, rounds: [] as Launch[] }));
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { command, rounds } of all) {
      const launched = await launch(command);
      // The first round only brings the files into memory and fills the cache of compiled code.
      if (round > 0) rounds.push(launched);
    }
  }
  return all;
}

function figuresOf(all: readonly Series[]): Figure[] {
  const [bare, ...ours] = all;
  const over = (series: Series | undefined, of: (launched: Launch) => number) =>
    median(series?.rounds.map(of) ?? []);
  const figure = (series: Series, name: string, of: (launched: Launch) => number) => {
    const [own, other] = [over(series, of), over(bare, of)];
    return { name: `${series.command.name}: ${name}`, own, other, ratio: own / other };
  };
  return ours.flatMap((series) => {
    const isHost = series.command === HOST;
    const start = figure(series, 'start to first answer', ({ ms }) => ms);
    const memory = figure(series, 'idle memory', ({ megabytes }) => megabytes);
    return [
      inUnit(start, 'ms', isHost ? MOST_MS : undefined),
      inUnit(memory, 'MB', isHost ? MOST_MEGABYTES : undefined),
    ];
  });
}

interface Compared {
  readonly name: string;
  readonly own: number;
  readonly other: number;
  readonly ratio: number;
}

function inUnit({ name, own, other, ratio }: Compared, unit: string, most?: number): Figure {
  return {
    name,
    ours: `${own.toFixed(0)} ${unit}`,
    beside: `${BARE.name}: ${other.toFixed(0)} ${unit}`,
    ratio,
    ...(most !== undefined && { target: atMost(most, own, ` ${unit}`) }),
  };
}

const loadNow = () => loadavg()[0]?.toFixed(1);

console.log(`Load of the machine before: ${loadNow()}\n`);
const figures = figuresOf(await launchAll());
console.log(figureTable(`median of ${ROUNDS}`, figures));
console.log(`\nLoad of the machine after: ${loadNow()}`);
await tell(figures);
