// Loaded into a host process with --import: on SIGUSR2 it collects garbage and prints its memory usage.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as (options: object) => void;

process.on('SIGUSR2', () => {
  gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  const { rss, heapUsed, external } = process.memoryUsage();
  process.stdout.write(`figures: ${JSON.stringify({ rss, heapUsed, external })}\n`);
});
