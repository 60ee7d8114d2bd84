import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { sse } from './script.ts';

export interface LlamaCppOptions {
  /** The window of each slot. */
  readonly contextTokens: number;
  /** Whether `/props` and the list of models report the window, as llama.cpp does and llama-cpp-python does not. */
  readonly reportsWindow: boolean;
  readonly hasVision?: boolean;
  /** The answer to a request. */
  readonly answer: (body: ChatBody) => string;
}

export interface ChatBody {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly object[];
}

interface ChatMessage {
  readonly role: string;
  readonly content: string | null | readonly { readonly type: string; readonly text?: string }[];
  readonly tool_calls?: readonly object[];
}

/** What the server did with one prompt. */
export interface ServedPrompt {
  readonly body: ChatBody;
  readonly tokens: number;
  readonly cached: number;
  readonly isRefused: boolean;
}

export interface LlamaCppServer {
  readonly url: string;
  readonly prompts: readonly ServedPrompt[];
  close(): Promise<void>;
}

const SLOTS = 4;

/**
 * The protocol of llama.cpp's server: slots that keep the tokens of their last prompt and answer, of which the common
 * beginning with the next prompt is not computed again, and a window beyond which a prompt is refused.
 */
export async function startLlamaCppServer(options: LlamaCppOptions): Promise<LlamaCppServer> {
  const prompts: ServedPrompt[] = [];
  const slots = Array.from({ length: SLOTS }, () => new Slot());
  const server = createServer(async (request, response) => {
    if (request.method === 'GET') return describeServer(request.url ?? '', options, response);
    const body = (await json(request)) as ChatBody;
    const prompt = toTokens(body);
    const rejection = findRejection(body, prompt.length, options);
    const slot = selectSlot(slots, prompt);
    const cached = slot.countCommon(prompt);
    prompts.push({ body, tokens: prompt.length, cached, isRefused: rejection !== undefined });
    if (rejection) return sendJson(response, rejection.code, { error: rejection });
    const room = options.contextTokens - prompt.length;
    const answer = splitText(options.answer(body)).slice(0, room);
    slot.keep([...prompt, ...answer]);
    const usage = {
      prompt_tokens: prompt.length,
      completion_tokens: answer.length,
      prompt_tokens_details: { cached_tokens: cached },
    };
    stream(response, answer, answer.length === room ? 'length' : 'stop', usage);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    prompts,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

class Slot {
  private tokens: readonly string[] = [];
  usedAt = 0;

  countCommon(prompt: readonly string[]): number {
    const differs = prompt.findIndex((token, i) => token !== this.tokens[i]);
    // At least the last token is computed again.
    return Math.min(differs < 0 ? prompt.length : differs, prompt.length - 1);
  }

  keep(tokens: readonly string[]): void {
    this.tokens = tokens;
    this.usedAt = performance.now();
  }
}

const LEAST_SIMILARITY = 0.1;

/** The slot with the longest common beginning, otherwise the one not used for the longest time. */
function selectSlot(slots: readonly Slot[], prompt: readonly string[]): Slot {
  const [first, ...rest] = slots as readonly [Slot, ...Slot[]];
  const closest = rest.reduce(
    (best, slot) => (slot.countCommon(prompt) > best.countCommon(prompt) ? slot : best),
    first,
  );
  if (closest.countCommon(prompt) > prompt.length * LEAST_SIMILARITY) return closest;
  return rest.reduce((oldest, slot) => (slot.usedAt < oldest.usedAt ? slot : oldest), first);
}

/** The prompt as a chat template writes it: tools with the system prompt, then every message. */
function toTokens({ messages, tools = [] }: ChatBody): string[] {
  const [system, ...rest] = messages;
  const definitions = tools.length > 0 ? splitText(JSON.stringify(tools)) : [];
  const opening = system ? ['<|im_start|>', system.role, ...splitText(readText(system))] : [];
  return [
    ...opening,
    ...definitions,
    ...rest.flatMap((message) => [
      '<|im_end|>',
      '<|im_start|>',
      message.role,
      ...splitText(readText(message)),
      ...(message.tool_calls ? splitText(JSON.stringify(message.tool_calls)) : []),
    ]),
    '<|im_end|>',
    '<|im_start|>',
    'assistant',
  ];
}

function readText({ content }: ChatMessage): string {
  if (typeof content === 'string') return content;
  // An image is a few hundred tokens.
  return (content ?? []).map(({ text }) => text ?? 'img'.repeat(500)).join('\n');
}

/** Smaller tokens than the host assumes, as for many languages. */
function splitText(text: string): string[] {
  return text.match(/.{1,3}/gs) ?? [];
}

function findRejection(body: ChatBody, tokens: number, options: LlamaCppOptions) {
  if (!options.hasVision && JSON.stringify(body).includes('"image_url"'))
    return { code: 500, message: 'image input is not supported', type: 'server_error' };
  if (tokens < options.contextTokens) return undefined;
  return {
    code: 400,
    message: 'the request exceeds the available context size, try increasing it',
    type: 'exceed_context_size_error',
    n_prompt_tokens: tokens,
    n_ctx: options.contextTokens,
  };
}

function describeServer(url: string, options: LlamaCppOptions, response: ServerResponse): void {
  const { reportsWindow, contextTokens, hasVision = false } = options;
  const meta = reportsWindow && { owned_by: 'llamacpp', meta: { n_ctx_train: 131_072 } };
  const default_generation_settings = { n_ctx: contextTokens };
  const modalities = { vision: hasVision };
  if (url === '/v1/models')
    sendJson(response, 200, { object: 'list', data: [{ id: 'local.gguf', ...meta }] });
  else if (url === '/props' && reportsWindow)
    sendJson(response, 200, { default_generation_settings, modalities });
  else sendJson(response, 404, { error: 'not found' });
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function stream(
  response: ServerResponse,
  answer: readonly string[],
  finish_reason: string,
  usage: object,
): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const deltas = answer.map((content) =>
    sse({ choices: [{ index: 0, delta: { content }, finish_reason: null }] }),
  );
  const last = sse({ choices: [{ index: 0, delta: {}, finish_reason }] });
  response.end([...deltas, last, sse({ choices: [], usage }), sse('[DONE]')].join(''));
}
