import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Message } from '@sibyl/protocol';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { createTestDatabase, type Engine, engines } from './support/test-database.js';
import { TestUser } from './support/user.js';

/** More than are stored at once. */
const MESSAGES = 4000;
const KNOWN = 10;

/** A conversation of ChatGPT with so many messages. */
function conversation(count: number): string {
  const nodes = Array.from({ length: count }, (_, i) => ({
    id: `m${i}`,
    parent: i === 0 ? null : `m${i - 1}`,
    children: [],
    message: {
      id: `m${i}`,
      author: { role: i % 2 === 0 ? 'user' : 'assistant' },
      create_time: 1_700_000_001 + i,
      content: { content_type: 'text', parts: [String(i)] },
    },
  }));
  return JSON.stringify([
    {
      title: 'Rome',
      create_time: 1_700_000_000,
      update_time: 1_700_000_000,
      conversation_id: 'c1',
      current_node: nodes.at(-1)?.id,
      mapping: Object.fromEntries(nodes.map((node) => [node.id, node])),
    },
  ]);
}

async function startImport(user: TestUser, body: string): Promise<string> {
  const { headers } = user;
  const response = await fetch(`${user.host.url}/me/import`, { method: 'POST', headers, body });
  expect(response.status).toBe(200);
  return ((await response.json()) as { id: string }).id;
}

async function importAll(user: TestUser, body: string): Promise<void> {
  const id = await startImport(user, body);
  for (;;) {
    const { body: job } = await user.request('GET', `/me/import/${id}`);
    if (job.status === 'finished') return;
    expect(job.status).toBe('running');
    await sleep(20);
  }
}

/** The texts of the only session. */
async function readTexts(user: TestUser): Promise<{ sessionId: string; texts: string[] }> {
  const { body } = await user.request('GET', '/sessions');
  expect(body.total).toBeLessThan(2);
  if (body.total === 0) return { sessionId: '', texts: [] };
  const { sessionId } = body.sessions[0];
  const { messages } = (await user.request('GET', `/messages/${sessionId}`)).body;
  return { sessionId, texts: messages.map(({ content }: Message) => content) };
}

async function start(engine: Engine): Promise<ClusterHost> {
  const database = await createTestDatabase(engine);
  const [host] = await startHosts(1, { env: database.env });
  onTestFinished(async () => {
    await host?.close();
    await database.drop();
  });
  return host as ClusterHost;
}

function listArchives({ dataDir }: ClusterHost): readonly string[] {
  const folder = join(dataDir, 'imports');
  return existsSync(folder) ? readdirSync(folder) : [];
}

describe.each(engines)('POST /me/import on %s, killed while it stores a conversation', (engine) => {
  it.each([
    ['a new conversation', 0],
    ['a known conversation that became longer', KNOWN],
  ])('leaves no archive, and %s can be continued and imported again', async (_, known) => {
    const host = await start(engine);
    const user = new TestUser(host);
    if (known > 0) await importAll(user, conversation(known));
    await startImport(user, conversation(MESSAGES));
    await expect.poll(async () => (await readTexts(user)).texts.length).toBeGreaterThan(known);
    await host.kill();
    expect(listArchives(host)).toHaveLength(1);
    await host.start();

    await expect.poll(() => listArchives(host)).toEqual([]);
    const { sessionId, texts } = await readTexts(user);
    expect(texts.length).toBeLessThan(MESSAGES);
    const body = { message: 'And now?' };
    expect(await user.request('POST', `/messages/${sessionId}`, { body })).toMatchObject({
      status: 200,
    });
    await importAll(user, conversation(MESSAGES));
    const after = await readTexts(user);
    const imported = Array.from({ length: MESSAGES }, (_, i) => String(i));
    expect(after.texts.slice(0, -1)).toEqual([...imported, 'And now?']);
  });
});
