import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { setImmediate as nextTick, setTimeout as sleep } from 'node:timers/promises';

/** One call of the model, by the marker in the newest message of the user. */
export interface ModelCall {
  readonly session: string;
  readonly number: number;
  readonly startedAt: number;
  /** Undefined while it runs. */
  endedAt: number | undefined;
}

interface AnsweringModelOptions {
  readonly tokens?: number;
  readonly gapMs?: number;
  /** An answer ends only when this has settled. */
  readonly beforeEnd?: (call: Pick<ModelCall, 'session' | 'number'>) => Promise<void> | undefined;
}

/**
 * A model server for OpenAI's chat completions that answers without a test: a few tokens with pauses. It records when
 * each call started and ended, so that turns of a session that overlap, or are in the wrong order, can be found.
 */
export interface AnsweringModel {
  /** The variables of a host that uses it. */
  readonly env: Readonly<Record<string, string>>;
  readonly calls: readonly ModelCall[];
  close(): void;
}

/** Marks a message, so that the model recognizes it. */
export const toMarker = (session: string, number: number): string => `<${session}/${number}>`;

/** The answer to a message with this marker begins with it. */
export const toAnswer = (session: string, number: number): string =>
  `Answer to ${toMarker(session, number)}`;

export async function startAnsweringModel(
  options: AnsweringModelOptions = {},
): Promise<AnsweringModel> {
  const calls: ModelCall[] = [];
  const server = createServer(async (request, response) => {
    // The host may be killed while it sends a request.
    const body = (await json(request).catch(() => undefined)) as ChatBody | undefined;
    if (!body) return void response.destroy();
    const marker = readMarker(body);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    // Titles are created in the background and have no separate marker.
    if (!marker || isTitle(body)) return void response.end(ENDING);
    const closed = once(response, 'close');
    // If its host was killed, the end of an earlier call of the session may have arrived in the same moment.
    for (let tick = 0; tick < 3; tick++) await nextTick();
    const call: ModelCall = { ...marker, startedAt: performance.now(), endedAt: undefined };
    calls.push(call);
    void closed.then(() => {
      call.endedAt = performance.now();
    });
    if (mayCallPage(body)) response.end(PAGE_CALL);
    else if (!response.closed) await answer(response, marker, options);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    env: { MODEL: 'openai-compatible/answering', MODEL_BASE_URL: `http://127.0.0.1:${port}/v1` },
    calls,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Pairs of calls of one session that ran at the same time. */
export function findOverlaps(calls: readonly ModelCall[]): string[] {
  return [...groupBySession(calls)].flatMap(([session, ofSession]) =>
    ofSession.flatMap((call, i) => {
      const earlier = ofSession
        .slice(0, i)
        .filter(({ endedAt = Number.POSITIVE_INFINITY }) => endedAt > call.startedAt);
      return earlier.map(({ number }) => `${session}: ${number} and ${call.number}`);
    }),
  );
}

/** Calls that came after a call for a later message of the session. */
export function findOutOfOrder(calls: readonly ModelCall[]): string[] {
  return [...groupBySession(calls)].flatMap(([session, ofSession]) =>
    ofSession.flatMap(({ number }, i) => {
      const later = ofSession.slice(0, i).find((earlier) => earlier.number > number);
      return later ? [`${session}: ${number} after ${later.number}`] : [];
    }),
  );
}

function groupBySession(calls: readonly ModelCall[]): Map<string, ModelCall[]> {
  return Map.groupBy(calls, ({ session }) => session);
}

interface ChatBody {
  readonly messages: readonly { readonly role: string; readonly content: unknown }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

/** Calls a browser tool of this name once, if the page has it. */
const PAGE_TOOL = 'scroll';

function mayCallPage({ messages, tools = [] }: ChatBody): boolean {
  return (
    messages.at(-1)?.role === 'user' && tools.some(({ function: { name } }) => name === PAGE_TOOL)
  );
}

function readMarker({ messages }: ChatBody): Pick<ModelCall, 'session' | 'number'> | undefined {
  const content = messages.findLast(({ role }) => role === 'user')?.content;
  const [, session, number] = /<([\w-]+)\/(\d+)>/.exec(JSON.stringify(content) ?? '') ?? [];
  return session === undefined ? undefined : { session, number: Number(number) };
}

function isTitle({ messages: [first] }: ChatBody): boolean {
  return first?.role === 'system' && String(first.content).startsWith('Write a title');
}

const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };
const ENDING = `${toChunk({ delta: {}, finish_reason: 'stop' }, { usage: USAGE })}data: [DONE]\n\n`;

function toChunk(choice: object, more: object = {}): string {
  return `data: ${JSON.stringify({ choices: [{ index: 0, ...choice }], ...more })}\n\n`;
}

const PAGE_CALL = `${toChunk({
  delta: {
    tool_calls: [{ index: 0, id: 'call', function: { name: PAGE_TOOL, arguments: '{"by":3}' } }],
  },
})}${toChunk({ delta: {}, finish_reason: 'tool_calls' })}data: [DONE]\n\n`;

async function answer(
  response: ServerResponse,
  { session, number }: Pick<ModelCall, 'session' | 'number'>,
  { tokens = 5, gapMs = 20, beforeEnd }: AnsweringModelOptions,
): Promise<void> {
  response.write(toChunk({ delta: { content: toAnswer(session, number) } }));
  for (let token = 0; token < tokens; token++) {
    await sleep(gapMs);
    if (response.closed) return;
    response.write(toChunk({ delta: { content: ` word${token}` } }));
  }
  // A model that sends nothing for a minute counts as failed.
  const alive = setInterval(() => response.write(toChunk({ delta: { content: '.' } })), ALIVE_MS);
  await beforeEnd?.({ session, number });
  clearInterval(alive);
  response.end(ENDING);
}

const ALIVE_MS = 10_000;
