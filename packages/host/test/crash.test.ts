import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { join, openSession, type SseStream, stream } from './support/stream.js';
import { uploadText } from './support/upload.js';
import { TestUser } from './support/user.js';

const CRASHES = scale(20, 5);
const TOKEN_GAP_MS = 5;
/** What may be lost of an answer, and how late a machine may notice anything at best. */
const LOSS_MS = 250;
const SLACK_MS = 150;

let dataDir: string;
let model: ControlledModel;
beforeAll(async () => {
  dataDir = await mkdtemp(joinPath(tmpdir(), 'sibyl-crash-'));
  model = await startControlledModel();
});
afterAll(async () => {
  model.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function start(env = {}): Promise<HostProcess & { url: string; did: string }> {
  const host = runHost({ PORT: '0', DATA_DIR: dataDir, ...model.env, ...env });
  const url = await untilListening(host);
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  return { ...host, url, did: card.did };
}

/** Makes the model say a numbered word every few milliseconds until it is stopped. */
function chatter(turn: ModelTurn): () => void {
  let n = 0;
  const timer = setInterval(() => turn.say(`w${n++} `), TOKEN_GAP_MS);
  return () => clearInterval(timer);
}

/** Notes when each piece of text arrived, until the connection breaks. */
async function watch(live: SseStream): Promise<{ text: string; at: number }[]> {
  const arrivals: { text: string; at: number }[] = [];
  let seen = 0;
  const note = () => {
    for (const { event, data } of live.frames.slice(seen))
      if (event === 'message') arrivals.push({ text: data.content, at: performance.now() });
    seen = live.frames.length;
  };
  await live
    .until(() => {
      note();
      return false;
    })
    .catch(() => undefined);
  return arrivals;
}

/** The first arrival whose text reaches beyond this length. */
function firstBeyond(arrivals: readonly { text: string; at: number }[], limit: number) {
  let length = 0;
  return arrivals.find(({ text }) => {
    length += text.length;
    return length > limit;
  });
}

/** The longest delay between words of this answer, which are said at an even pace. */
function longestPause(arrivals: readonly { at: number }[]): number {
  const pauses = arrivals.map(({ at }, i) => at - (arrivals[i - 1]?.at ?? at));
  return Math.max(0, ...pauses);
}

/** What a client shows in the end: it truncates its text to the stored length. */
async function rejoin(user: TestUser, before: SseStream): Promise<string> {
  const again = await join(user, before.runId, before.lastId);
  let { text } = before;
  for (const { event, data } of await again.toEnd()) {
    if (event === 'run' && data.resumed) text = text.slice(0, data.partialLength);
    if (event === 'message') text += data.content;
    if (event === 'done' && data.status !== 'finished') text = data.partialText;
  }
  expect(again.frames.at(-1)).toMatchObject({
    event: 'done',
    data: { status: 'interrupted', interrupted: true },
  });
  return text;
}

it(`the host loses nothing acknowledged in ${CRASHES} crashes during an answer`, {
  timeout: 180_000,
}, async () => {
  let host = await start();
  const alice = new TestUser(host);
  for (let crash = 0; crash < CRASHES; crash++) {
    const user = alice.at(host);
    const sessionId = await openSession(user);
    const question = `question ${crash}`;
    const live = await stream(user, sessionId, { message: question });
    const watching = watch(live);
    const silence = chatter(await model.next());
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 700));
    const killedAt = performance.now();
    host.child.kill('SIGKILL');
    await host.ended;
    silence();
    const arrivals = await watching;
    host = await start();

    const again = alice.at(host);
    const { body } = await again.request('GET', `/messages/${sessionId}`);
    const stored = body.messages.at(-1);
    expect(body.messages.map((m: { type: string }) => m.type)).toEqual(['human', 'ai']);
    expect(body.messages[0].content).toBe(question);
    expect(stored).toMatchObject({ type: 'ai', isComplete: false });
    const words = Array.from({ length: 1000 }, (_, n) => `w${n} `).join('');
    expect(words.startsWith(stored.content)).toBe(true);
    const lost = firstBeyond(arrivals, stored.content.length);
    const slackMs = SLACK_MS + 2 * longestPause(arrivals);
    if (lost) expect(killedAt - lost.at).toBeLessThan(LOSS_MS + slackMs);
    const run = await again.request('GET', `/sessions/${sessionId}/run`);
    expect(run.body.run).toMatchObject({ status: 'interrupted', messageId: stored.id });
    expect(await rejoin(again, live)).toBe(stored.content);
  }
  host.child.kill('SIGKILL');
  await host.ended;
});

it('the host embeds a file again at once that it was embedding when it was killed', {
  timeout: 120_000,
}, async () => {
  let asked = 0;
  const silent = createServer(() => {
    asked += 1;
  }).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const env = {
    EMBEDDING_MODEL: 'openai-compatible/silent',
    EMBEDDING_BASE_URL: `http://127.0.0.1:${(silent.address() as AddressInfo).port}/v1`,
  };
  const killed = await start(env);
  await uploadText(new TestUser(killed), 'notes.txt', 'The old automobile is behind the house.');
  await expect.poll(() => asked, { timeout: 30_000 }).toBe(1);
  killed.child.kill('SIGKILL');
  await killed.ended;
  const again = await start(env);
  await expect.poll(() => asked, { timeout: 60_000 }).toBe(2);
  again.child.kill('SIGKILL');
  await again.ended;
  silent.closeAllConnections();
  silent.close();
});

it('the host finishes a running turn on SIGTERM', async () => {
  const host = await start();
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'finish in time' });
  const turn = await model.next();
  turn.say('almost ');
  await live.untilEvent('message');
  host.child.kill('SIGTERM');
  turn.say('done');
  turn.finish();
  expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  expect(await host.ended).toBe(0);
});
