// Searches the messages of one user among those of all users, on both engines or on one:
// npm run bench:search -- 100000 SQLite. TMPDIR=/dev/shm fills them faster.
import '../packages/host/test/support/source-hooks.ts';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SearchEntry } from '../packages/host/src/store/search/search-index.ts';
import type { Store } from '../packages/host/src/store/store.ts';
import {
  atMost,
  type Figure,
  formatFigures,
  median,
  quantile,
  reportFigures,
} from './support/figures.ts';

// Loaded only now: the hooks resolve what the support of the tests imports.
const { withPostgres } = await import('./cluster/hosts.ts');

const MESSAGES = Number(process.argv[2] ?? 1_000_000);
/** One message of a hundred belongs to the user who searches. */
const SHARE = 100;
const WORDS = 50_000;
const WORDS_PER_MESSAGE = 50;
const SEARCHES = 300;
/** What a search does to the event loop it does in every round; a pause of a shared machine is in one of them. */
const ROUNDS = 3;
const PAGE = 20;
const BATCH = 500;
const LIMITS = { p95Ms: 50, blockedMs: 20 };

const owner = 'did:key:zSearching';

/** Words as they occur in languages: the second is half as frequent as the first, and so on. */
function pickWord(): string {
  return `word${Math.floor(WORDS ** Math.random())}`;
}

const createText = () => Array.from({ length: WORDS_PER_MESSAGE }, () => pickWord()).join(' ');

async function main(): Promise<void> {
  const measureEngine: Readonly<Record<string, () => Promise<Figure[]>>> = {
    SQLite: () => measure('SQLite', {}),
    PostgreSQL: () => withPostgres((databaseUrl) => measure('PostgreSQL', { databaseUrl })),
  };
  const engines = process.argv[3] ? [process.argv[3]] : Object.keys(measureEngine);
  const figures: Figure[] = [];
  for (const engine of engines) {
    const measured = await measureEngine[engine]?.();
    if (!measured) throw new Error(`The second argument is one of ${Object.keys(measureEngine)}`);
    figures.push(...measured);
  }
  console.log(formatFigures('search', figures));
  await reportFigures(figures);
  if (figures.some(({ target }) => target?.isMet === false)) process.exitCode = 1;
}

async function measure(
  engine: string,
  database: { readonly databaseUrl?: string },
): Promise<Figure[]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-search-'));
  const built = new URL('../packages/host/dist/store/store.js', import.meta.url).href;
  const { openStore } = await import(built);
  const store: Store = await openStore({ ...database, dataDir, secretKey: new Uint8Array(32) });
  try {
    await fill(store);
    const texts = Array.from({ length: SEARCHES }, (_, i) => createQuery(i));
    for (const text of texts.slice(0, SEARCHES / 10)) await search(store, text);
    const blocks = watchBlocks();
    const rounds: { ms: number; blockedMs: number }[][] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const searches = [];
      for (const text of texts)
        searches.push({ ms: await search(store, text), blockedMs: blocks.take() });
      rounds.push(searches);
    }
    blocks.stop();
    const times = rounds.flat().map(({ ms }) => ms);
    const blocked = texts.map((_, i) =>
      Math.min(...rounds.map((round) => round[i]?.blockedMs ?? Infinity)),
    );
    const among = `${engine}, ${MESSAGES.toLocaleString('en')} messages, ${(MESSAGES / SHARE).toLocaleString('en')} of the user`;
    return [
      { name: `${among}: p50`, ours: `${median(times).toFixed(1)} ms` },
      toFigure(`${among}: p95`, quantile(times, 0.95), LIMITS.p95Ms),
      toFigure(`${among}: longest block of the event loop`, Math.max(...blocked), LIMITS.blockedMs),
    ];
  } finally {
    await store.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

const toFigure = (name: string, ms: number, most: number): Figure => ({
  name,
  ours: `${ms.toFixed(1)} ms`,
  target: atMost(most, ms, ' ms'),
});

/** The user's messages are stored and indexed; of the others only what a search could touch: the index. */
async function fill(store: Store): Promise<void> {
  const { sessionId } = await store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  for (let from = 0; from < MESSAGES; from += BATCH) {
    for (let i = 0; i < BATCH / SHARE; i++)
      await store.messages.append({
        ...{ owner, sessionId, type: 'human', content: createText() },
        ...{ requestId: 'r', isComplete: true },
      });
    const others = Array.from({ length: BATCH - BATCH / SHARE }, () => createEntry());
    await store.search.put(others);
    if (from % 5_000 === 0) while (await store.search.indexPass());
  }
  while (await store.search.indexPass());
}

const createEntry = (): SearchEntry => ({
  owner: `did:key:z${Math.floor(Math.random() * 1000)}`,
  source: 'message',
  id: randomUUID(),
  scope: 'session',
  createdAt: Date.now(),
  parts: [createText()],
});

/** How long the main thread ran without a pause, at most, since the last call of `take`. */
function watchBlocks(): { take(): number; stop(): void } {
  let longest = 0;
  let before = process.threadCpuUsage();
  const measure = () => {
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.threadCpuUsage();
  };
  const timer = setInterval(measure, 1);
  return {
    take: () => {
      measure();
      const taken = longest;
      longest = 0;
      return taken;
    },
    stop: () => clearInterval(timer),
  };
}

/** Frequent words, rare words, several words, phrases and beginnings of words in turn. */
function createQuery(i: number): string {
  const texts = [
    `word1 `,
    `${pickWord()} `,
    `${pickWord()} ${pickWord()}`,
    `word2 word3 word4 `,
    `"word1 word2" `,
    `word${1 + (i % 9)}`,
  ];
  return texts[i % texts.length] as string;
}

async function search(store: Store, text: string): Promise<number> {
  const started = performance.now();
  await store.search.findMessages({ owner, text, limit: PAGE, offset: 0 });
  return performance.now() - started;
}

await main();
