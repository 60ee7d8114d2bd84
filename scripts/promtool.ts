// Checks the metrics of a running host with promtool of Prometheus.
// Exit codes: 0 passed, 1 failed, 77 skipped with the reason on the last line.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buildIfChanged, MAIN } from './build.ts';
import { SKIPPED } from './third-party.ts';

const START_TIMEOUT_MS = 60_000;

process.exitCode = await main();

async function main(): Promise<number> {
  if (spawnSync('promtool', ['--version']).error) {
    console.log('promtool skipped: it is not installed (Debian package prometheus)');
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-promtool-'));
  const port = await findFreePort();
  const env = { ...process.env, PORT: '0', METRICS_PORT: String(port), DATA_DIR: dataDir };
  const host = spawn(process.execPath, [MAIN], { env, stdio: 'ignore' });
  try {
    const input = await readMetrics(`http://127.0.0.1:${port}/metrics`);
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input,
      encoding: 'utf8',
    });
    // What it says about the names of the defaults of prom-client is not an error of ours.
    const own = `${stdout}${stderr}`.split('\n').filter((line) => line.startsWith('sibyl_'));
    console.log(own.join('\n') || 'promtool: the metrics are valid');
    return own.length > 0 || status === 1 ? 1 : 0;
  } finally {
    host.kill('SIGKILL');
    await once(host, 'exit');
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function readMetrics(url: string): Promise<string> {
  for (const deadline = performance.now() + START_TIMEOUT_MS; ; await delay(200)) {
    try {
      return await (await fetch(url)).text();
    } catch (error) {
      if (performance.now() > deadline) throw error;
    }
  }
}

async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  return typeof address === 'object' && address ? address.port : 0;
}
