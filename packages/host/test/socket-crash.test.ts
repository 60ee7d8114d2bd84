import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { findFreePort } from './support/free-port.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const started: HostProcess[] = [];
afterEach(() => {
  for (const { child } of started) child.kill('SIGKILL');
});

async function start(env: Record<string, string>): Promise<HostProcess & { url: string }> {
  const host = runHost(env);
  started.push(host);
  return { ...host, url: await untilListening(host) };
}

it('a client that outlives a crash learns that the answer it saw is not the one stored', {
  timeout: 120_000,
}, async () => {
  const model = await startControlledModel();
  const DATA_DIR = await mkdtemp(join(tmpdir(), 'sibyl-crash-'));
  const PORT = String(await findFreePort());
  const first = await start({ PORT, DATA_DIR, ...model.env });
  const card = (await (await fetch(`${first.url}/.well-known/oracle.json`)).json()) as {
    did: string;
  };
  const alice = new TestUser({ url: first.url, did: card.did });
  const sessionId = await openSession(alice);
  const socket = await joinSession(alice, sessionId, { reconnectionDelay: 50 });
  const live = await stream(alice, sessionId, { message: 'go' });
  const turn = await model.next();
  turn.think('Hm.');
  turn.say('Half an ');
  await live.untilEvent('message');
  await socket.until('reasoning');
  first.child.kill('SIGKILL');
  await first.ended;
  await live.toEnd().catch(() => undefined);
  await start({ PORT, DATA_DIR, ...model.env });
  const { payload } = await socket.until('message_cache_invalidation');
  const { body } = await alice.request('GET', `/messages/${sessionId}`);
  const answer = body.messages.at(-1);
  expect(answer).toMatchObject({ type: 'ai', isComplete: false });
  expect(payload).toMatchObject({ sessionId, messageIds: [answer.id], status: 'done' });
  model.close();
  await rm(DATA_DIR, { recursive: true, force: true });
});
