// Compares the processor time of a turn in this checkout with that in another one, without tracing:
//   node bench/pairs.ts <folder of the other checkout> [pairs]
// Build both before. In each pair both hosts run in new processes, one after the other, in changing order; each is warmed
// up first. The median of the pairs' ratios is hardly affected by other load on the machine.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { median, quantile, readLoad } from './support/figures.ts';
import { mintTokens, type ServerProcess, startServer } from './support/server-process.ts';
import { buildHostEnv, post } from './turn/targets.ts';

const PAIRS = 10;
const WARM_UP_TURNS = 300;
const TURNS = 600;
const CONCURRENCY = 8;
const TURNS_PER_SESSION = 10;
const MODEL = { tokens: 20, gapMs: 0, toolCall: { name: 'clock', input: '{"place":"Nairobi"}' } };
/** Even if the shell sets them. */
const UNOBSERVED = { OTEL_EXPORTER_OTLP_ENDPOINT: '', METRICS_PORT: '' };
const JSON_TYPE = { 'content-type': 'application/json' };

const [folder, pairs = String(PAIRS)] = process.argv.slice(2);
if (!folder || !(Number(pairs) > 0)) {
  console.error('Usage: node bench/pairs.ts <folder of the other checkout> [pairs]');
  process.exit(2);
}
const checkouts = { ours: resolve(import.meta.dirname, '..'), theirs: resolve(folder) };
type Name = keyof typeof checkouts;

console.log(`Load of the machine before: ${readLoad()}`);
const stub = await startServer(new URL('./servers/model.ts', import.meta.url), {
  args: [JSON.stringify(MODEL)],
});
const ratios: number[] = [];
try {
  for (let pair = 0; pair < Number(pairs); pair++) ratios.push(await measurePair(pair));
} finally {
  await stub.stop();
}
console.log(
  `Median ratio ours/theirs of ${ratios.length} pairs: ${median(ratios).toFixed(3)}` +
    ` (quartiles ${quantile(ratios, 0.25).toFixed(3)} and ${quantile(ratios, 0.75).toFixed(3)})`,
);
console.log(`Load of the machine after: ${readLoad()}`);

async function measurePair(pair: number): Promise<number> {
  const order: readonly Name[] = pair % 2 === 0 ? ['ours', 'theirs'] : ['theirs', 'ours'];
  const cpuMs = { ours: 0, theirs: 0 };
  for (const name of order) cpuMs[name] = await measureHost(checkouts[name]);
  const ratio = cpuMs.ours / cpuMs.theirs;
  const figures = [cpuMs.ours, cpuMs.theirs].map((ms) => ms.toFixed(2)).join(' / ');
  console.log(`Pair ${pair + 1}, ${order[0]} first: ${figures} ms per turn, ${ratio.toFixed(3)}`);
  return ratio;
}

/** Milliseconds of processor time per turn, of a new process. */
async function measureHost(checkout: string): Promise<number> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-pairs-'));
  const script = pathToFileURL(join(checkout, 'bench/servers/host.ts'));
  const host = await startServer(script, {
    args: ['clock'],
    env: { ...buildHostEnv(stub, dataDir), ...UNOBSERVED },
  });
  try {
    await sendTurns(host, WARM_UP_TURNS);
    const before = host.cpuMs();
    await sendTurns(host, TURNS);
    return (host.cpuMs() - before) / TURNS;
  } finally {
    await host.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/** Several clients, each in sessions of some turns. */
async function sendTurns(host: ServerProcess, turns: number): Promise<void> {
  const tokens = mintTokens(CONCURRENCY, host.did ?? '');
  await Promise.all(
    tokens.map(async (token) => {
      const headers = { ...JSON_TYPE, authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' };
      const send = async (path: string, body: object) =>
        post({ url: host.url, path, headers, body: JSON.stringify(body) });
      let path = '';
      for (let turn = 0; turn < turns / CONCURRENCY; turn++) {
        if (turn % TURNS_PER_SESSION === 0) {
          const { text } = await send('/sessions', { title: 'Bench' });
          path = `/messages/${JSON.parse(text).sessionId}`;
        }
        await send(path, { message: `What time is it? ${turn}` });
      }
    }),
  );
}
