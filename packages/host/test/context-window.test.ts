import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { startHost } from './support/host.js';
import {
  type ChatBody,
  type ServedPrompt,
  startLlamaCppServer,
} from './support/model-servers/llama-cpp-server.ts';
import { openSession, type SseFrame, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const WINDOW = 8192;

beforeEach(() => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() }));
afterEach(() => vi.useRealTimers());

const isMainCall = ({ messages }: ChatBody) => JSON.stringify(messages).includes('[Sent: ');
const answer = (body: ChatBody) =>
  isMainCall(body)
    ? `This is what I know about it, at some length. ${'It depends on the soil. '.repeat(15)}`
    : 'They spoke about many questions.';

interface AskedTurn {
  readonly frames: readonly SseFrame[];
  /** The calls for the answer, refused ones included. */
  readonly prompts: readonly ServedPrompt[];
}

/** Asks a question per minute in one session. */
async function askEveryMinute(count: number, reportsWindow: boolean): Promise<AskedTurn[]> {
  const contextTokens = WINDOW;
  const server = await startLlamaCppServer({ contextTokens, reportsWindow, answer });
  const env = { MODEL: 'openai-compatible/local.gguf', MODEL_BASE_URL: server.url };
  const host = await startHost({ env });
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const turns: AskedTurn[] = [];
  for (let n = 1; n <= count; n++) {
    const before = server.prompts.length;
    // Tokens live for minutes.
    const live = await stream(alice.at(host), sessionId, {
      message: `Question ${n}: why is it so?`,
    });
    const frames = await live.toEnd();
    const prompts = server.prompts.slice(before).filter(({ body }) => isMainCall(body));
    turns.push({ frames, prompts });
    vi.setSystemTime(Date.now() + 60_000);
  }
  await host.close();
  await server.close();
  return turns;
}

const lastPrompt = ({ prompts }: AskedTurn) => prompts.at(-1) as ServedPrompt;
const listWarnings = ({ frames }: AskedTurn) =>
  frames.filter(({ event }) => event === 'warning').map(({ data }) => data.code);

/** How many of the first questions the model does not see in this turn. */
function countMissing(turn: AskedTurn, n: number): number {
  const text = JSON.stringify(lastPrompt(turn).body.messages);
  return Array.from({ length: n }, (_, i) => `Question ${i + 1}: `).filter(
    (question) => !text.includes(question),
  ).length;
}

function assertAllAnswered(turns: readonly AskedTurn[]): void {
  for (const { frames } of turns)
    expect(frames.at(-1)).toMatchObject({ event: 'done', data: { status: 'finished' } });
  let missing = 0;
  for (const [i, turn] of turns.entries()) {
    const now = countMissing(turn, i + 1);
    // What the model no longer sees is summarized, and the user is informed when that happens.
    if (now > missing) expect(listWarnings(turn)).toContain('history_summarized');
    if (now > 0) expect(JSON.stringify(lastPrompt(turn).body)).toContain('They spoke about many');
    missing = now;
  }
  expect(missing).toBeGreaterThan(0);
}

describe(`a session with a model of ${WINDOW} tokens`, () => {
  it('whose window the server reports: no call is refused, and 95 % of a prompt is cached', async () => {
    const turns = await askEveryMinute(60, true);
    assertAllAnswered(turns);
    expect(turns.flatMap(({ prompts }) => prompts.filter(({ isRefused }) => isRefused))).toEqual(
      [],
    );
    const unshortened = turns.filter((turn, i) => i > 0 && listWarnings(turn).length === 0);
    expect(unshortened.length).toBeGreaterThan(40);
    for (const turn of unshortened) {
      const { cached, tokens } = lastPrompt(turn);
      expect(cached / tokens).toBeGreaterThanOrEqual(0.95);
    }
  }, 120_000);

  it('whose window only errors report: a refused call is repeated once, shorter', async () => {
    const turns = await askEveryMinute(40, false);
    assertAllAnswered(turns);
    const refused = turns.filter(({ prompts }) => prompts.some(({ isRefused }) => isRefused));
    expect(refused).toHaveLength(1);
    for (const { prompts } of refused)
      expect(prompts.map(({ isRefused }) => isRefused)).toEqual([true, false]);
  }, 120_000);
});
