// Counts the source files and functions that one streamed message runs in the host, without what runs anyway: `npm run style --
// --message`. The message is one of many in a warm host with SQLite and the offline model.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';

/** Messages before the one that counts. */
const WARM = 5;
/** Longer than it takes to index a message, and than each timer of the host. */
const IDLE_MS = 20_000;
/** What follows the answer, such as its storing. */
const SETTLED_MS = 1_500;
const ROUNDS = 3;

const root = join(import.meta.dirname, '..');

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-message-'));
  const env = { PORT: '0', LOG_LEVEL: 'fatal', DATA_DIR: dataDir, NODE_ENV: 'production' };
  const host = fork(new URL('./servers/covered-host.ts', import.meta.url), {
    env: { ...process.env, ...env },
  });
  try {
    const [{ url, did }] = await once(host, 'message');
    const send = await openSession(url, did);
    for (let i = 0; i < WARM; i++) await send();
    await sleep(IDLE_MS);
    await take(host);
    await sleep(IDLE_MS);
    const idle = new Set(await take(host));
    // What runs in each round belongs to the message; what runs in one alone is a timer.
    const rounds: Set<string>[] = [];
    for (let i = 0; i < ROUNDS; i++) {
      await take(host);
      await send();
      await sleep(SETTLED_MS);
      rounds.push(new Set(await take(host)));
    }
    const [first = new Set(), ...others] = rounds;
    report([...first].filter((each) => !idle.has(each) && others.every((one) => one.has(each))));
  } finally {
    host.kill();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/** Opens a session; each call of the result sends a message and reads its stream to the end. */
async function openSession(url: string, audience: string) {
  const signer = generateSigner();
  const token = mintAuthInvocation({ signer, audience, ttlSeconds: 600 }).ok?.token;
  const headers = {
    authorization: `Bearer ${token}`,
    'x-auth-type': 'ucan',
    'content-type': 'application/json',
  };
  const post = (path: string, body: object) =>
    fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const { sessionId } = (await (await post('/sessions', {})).json()) as { sessionId: string };
  return async () => {
    const body = { message: 'count to 5', stream: true };
    const text = await (await post(`/messages/${sessionId}`, body)).text();
    if (!text.includes('event: done')) throw new Error(`The message was not answered: ${text}`);
  };
}

async function take(host: ChildProcess): Promise<readonly string[]> {
  host.send('take');
  const [{ functions }] = await once(host, 'message');
  return functions;
}

function report(functions: readonly string[]): void {
  const files = new Map<string, number>();
  for (const place of functions) {
    const file = relative(root, place.replace(/:\d+$/, ''));
    files.set(file, (files.get(file) ?? 0) + 1);
  }
  const folders = Map.groupBy(files, ([file]) => dirname(file).replace('/dist', '/src'));
  for (const [folder, own] of [...folders].sort((a, b) => b[1].length - a[1].length)) {
    const sum = own.reduce((total, [, count]) => total + count, 0);
    console.log(`${folder.padEnd(44)}${own.length} files, ${sum} functions`);
  }
  console.log(`\none streamed message: ${files.size} files, ${functions.length} functions`);
}

await main();
