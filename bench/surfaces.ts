// What a turn costs through each surface, compared with the host's own route on the same host. Every turn begins a session.
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  describeMachine,
  type Figure,
  formatFigures,
  median,
  reportFigures,
} from './support/figures.ts';
import { mintTokens, type ServerProcess, startServer } from './support/server-process.ts';
import { buildHostEnv, post, TOKEN } from './turn/targets.ts';

const TOKENS = 20;
const USERS = 16;
const TURNS = 300;
const AT_ONCE = 4;
const ROUNDS = 5;
const MESSAGE = 'What does the almanac say about the weather on the coast tomorrow?';
const OWN = 'POST /messages';

interface SurfaceRequest {
  readonly path: string;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

type Send = (request: SurfaceRequest) => Promise<string>;

/** One turn through each surface; resolves to the text of the reply. */
const SURFACES: Readonly<Record<string, (send: Send) => Promise<string>>> = {
  [OWN]: async (send) => {
    const { sessionId } = JSON.parse(await send({ path: '/sessions', body: {} }));
    return send({ path: `/messages/${sessionId}`, body: { message: MESSAGE, stream: true } });
  },
  'OpenAI chat completions': (send) =>
    send({
      path: '/v1/chat/completions',
      body: { model: 'default', stream: true, messages: [{ role: 'user', content: MESSAGE }] },
    }),
  'OpenAI responses': (send) =>
    send({ path: '/v1/responses', body: { model: 'default', stream: true, input: MESSAGE } }),
  'AI SDK': (send) =>
    send({
      path: '/ui/chat',
      body: {
        id: randomUUID(),
        trigger: 'submit-message',
        messages: [{ id: randomUUID(), role: 'user', parts: [{ type: 'text', text: MESSAGE }] }],
      },
    }),
  'AG-UI': (send) =>
    send({
      path: '/v2/agent/run',
      body: {
        ...{ threadId: randomUUID(), runId: randomUUID(), tools: [], context: [] },
        messages: [{ id: randomUUID(), role: 'user', content: MESSAGE }],
      },
      headers: { accept: 'text/event-stream' },
    }),
  A2A: (send) =>
    send({
      path: '/a2a',
      body: {
        ...{ jsonrpc: '2.0', id: 1, method: 'SendStreamingMessage' },
        params: {
          message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: MESSAGE }] },
        },
      },
      headers: { 'a2a-version': '1.0', accept: 'text/event-stream' },
    }),
  'MCP tool ask': (send) =>
    send({
      path: '/mcp',
      body: {
        ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
        params: { name: 'ask', arguments: { message: MESSAGE } },
      },
      headers: {
        'mcp-protocol-version': '2025-11-25',
        accept: 'application/json, text/event-stream',
      },
    }),
};

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-surfaces-'));
  const model = await startServer(new URL('./servers/model.ts', import.meta.url), {
    args: [JSON.stringify({ tokens: TOKENS, gapMs: 0 })],
  });
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: buildHostEnv(model, dataDir),
  });
  try {
    const figures = toFigures(await measure(host));
    console.log(`${formatFigures('surfaces', figures)}\n\nMeasured on ${describeMachine()}.`);
    await reportFigures(figures);
  } finally {
    await host.stop();
    await model.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/** Milliseconds of processor time of the host per turn, by surface and round; the first round only warms up. */
async function measure(host: ServerProcess): Promise<ReadonlyMap<string, number[]>> {
  const rounds = new Map<string, number[]>(Object.keys(SURFACES).map((name) => [name, []]));
  const tokens = mintTokens(USERS, host.did ?? '');
  for (let round = 0; round <= ROUNDS; round++)
    for (const [name, turn] of Object.entries(SURFACES)) {
      const before = host.cpuMs();
      await sendTurns(host, tokens, { name, turn });
      if (round > 0) rounds.get(name)?.push((host.cpuMs() - before) / TURNS);
    }
  return rounds;
}

async function sendTurns(
  host: ServerProcess,
  tokens: readonly string[],
  { name, turn }: { readonly name: string; readonly turn: (send: Send) => Promise<string> },
): Promise<void> {
  let sent = 0;
  const worker = async () => {
    while (sent < TURNS) {
      const authorization = `Bearer ${tokens[sent++ % tokens.length]}`;
      const text = await turn(async ({ path, body, headers }) => {
        const all = { ...headers, authorization, 'x-auth-type': 'ucan' };
        const reply = await post({
          ...{ url: host.url, path, body: JSON.stringify(body) },
          headers: { 'content-type': 'application/json', ...all },
        });
        return reply.text;
      });
      if (!text.includes(TOKEN)) throw new Error(`${name} did not answer: ${text.slice(0, 500)}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function toFigures(rounds: ReadonlyMap<string, number[]>): Figure[] {
  const own = rounds.get(OWN) ?? [];
  const ownMs = `${OWN}: ${median(own).toFixed(2)} ms`;
  return [...rounds]
    .filter(([name]) => name !== OWN)
    .map(([name, times]) => ({
      name: `${name}: processor per turn`,
      ours: `${median(times).toFixed(2)} ms`,
      beside: ownMs,
      ratio: median(times.map((ms, i) => ms / (own[i] as number))),
    }));
}

await main();
