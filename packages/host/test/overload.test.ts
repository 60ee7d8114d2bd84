import fs from 'node:fs';
import { get } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import {
  type ChatCompletionsStub,
  startChatCompletionsStub,
} from './support/model-servers/chat-completions-stub.js';
import { TestUser } from './support/user.js';

/** Of 64 units of work. */
const COMMIT_MS = 900;
/** Shorter than the queue of a host that accepts everything. */
const STORE_WAIT_SECONDS = '4';
const USERS = 400;
const ACCEPTED = 150;
const REFUSED = 20;
/** As clients do that are refused, but sooner. */
const PAUSE_MS = 500;

const ANSWERED = '200  ';
const BUSY = '503 host_busy 5';

let model: ChatCompletionsStub;
let host: TestHost;
beforeEach(async () => {
  model = await startChatCompletionsStub({ tokens: 3, gapMs: 0 });
  const env = { MODEL: 'openai-compatible/stub', MODEL_BASE_URL: model.url };
  // All users have one address, whose share of the turns this is.
  host = await startHost({ env: { ...env, STORE_WAIT_SECONDS, TURNS_MAX: '10000' } });
});
afterEach(async () => {
  vi.restoreAllMocks();
  await host.close();
  await model.close();
});

function slowDisk(): void {
  const { fdatasync } = fs;
  vi.spyOn(fs, 'fdatasync').mockImplementation((descriptor, onEnd) => {
    setTimeout(() => fdatasync(descriptor, onEnd), COMMIT_MS);
  });
}

async function probe(): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get(`${host.url}/health`, { agent: false }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode));
    }).on('error', reject);
  });
}

it('POST /messages refuses turns that the store has no time for, and stores the end of all others', async () => {
  const users = Array.from({ length: USERS }, () => new TestUser(host));
  const chats: { user: TestUser; sessionId: string }[] = [];
  for (const user of users) {
    const { body } = await user.request('POST', '/sessions', { body: {} });
    chats.push({ user, sessionId: body.sessionId });
  }
  slowDisk();
  const counts: Record<string, number> = {};
  const has = (outcome: string, count: number) => (counts[outcome] ?? 0) >= count;
  const isOver = () =>
    (has(ANSWERED, ACCEPTED) && has(BUSY, REFUSED)) ||
    Object.keys(counts).some((outcome) => outcome !== ANSWERED && outcome !== BUSY);
  const send = async ({ user, sessionId }: (typeof chats)[number]) => {
    while (!isOver()) {
      const sent = { body: { message: 'hi' } };
      const { status, headers, body } = await user.request('POST', `/messages/${sessionId}`, sent);
      const outcome = [status, body.code, headers.get('retry-after')].join(' ');
      counts[outcome] = (counts[outcome] ?? 0) + 1;
      if (outcome !== BUSY) continue;
      expect(await probe()).toBe(200);
      await sleep(PAUSE_MS);
    }
  };
  await Promise.all(chats.map(send));
  expect(Object.keys(counts).sort()).toEqual([ANSWERED, BUSY]);
  const [{ user, sessionId }] = chats as [(typeof chats)[number]];
  await expect
    .poll(async () => {
      const { status } = await user.request('POST', `/messages/${sessionId}`, {
        body: { message: 'hi' },
      });
      return status;
    })
    .toBe(200);
});
