import type { Embeddings, ModelUse } from '@sibyl/plugin-kit';
import { toVector, type Vector } from '@sibyl/plugin-kit/search';
import { z } from 'zod';
import type { EmbeddingConfig } from '../config/models-config.js';
import { createModelError, ModelError, toModelError } from './model.js';
import { readErrorReply } from './openai-compatible/chat-stream.js';
import { buildHeaders, postJson, toRouteUrl } from './openai-compatible/http-client.js';

/** Servers limit how much one request may contain. */
const TEXTS_PER_CALL = 64;
/** Most models read about 500 tokens of a text, some 8,000. */
const MAX_CHARACTERS = 8_000;
const TIMEOUT_MS = 30_000;
/** A vector of 4,096 numbers is about 90 kB of JSON. */
const MAX_REPLY_CHARACTERS = 16 * 1024 ** 2;

const Reply = z.object({
  data: z.array(
    z.object({ index: z.int().min(0), embedding: z.array(z.number()).min(1).max(8192) }),
  ),
  usage: z.object({ total_tokens: z.number().min(0) }).optional(),
});

interface EmbeddingModelOptions {
  readonly config: EmbeddingConfig;
  /** Throws if no more tokens may be spent. */
  readonly check: () => Promise<void>;
  readonly onUse: (use: ModelUse) => void;
}

/** Creates the embedding model of a server that implements OpenAI's embeddings. */
export function createEmbeddings({ config, check, onUse }: EmbeddingModelOptions): Embeddings {
  const { id: model, name, baseUrl, apiKey } = config;
  const url = toRouteUrl(baseUrl, '/embeddings');
  const headers = buildHeaders({ apiKey });
  const call = async (texts: readonly string[]): Promise<readonly Vector[]> => {
    await check();
    const input = texts.map((text) => text.slice(0, MAX_CHARACTERS).toWellFormed());
    const body = JSON.stringify({ model: name, input, encoding_format: 'float' });
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const reply = await postJson({ url, headers, body, signal });
    reply.setEncoding('utf8');
    if (reply.statusCode !== 200) {
      const error = await readErrorReply(reply);
      // Some servers repeat the key that they reject.
      throw toModelError({ ...error, text: error.text.replaceAll(apiKey || '\0', '…') });
    }
    const { vectors, tokens } = parseReply(await readText(reply), texts.length);
    // As a rule of thumb, a token has four characters.
    onUse({ model, input: tokens ?? Math.ceil(input.join('').length / 4), output: 0, cached: 0 });
    return vectors;
  };
  return {
    model,
    embed: async (texts) => {
      const vectors: (Vector | undefined)[] = [];
      for (let at = 0; at < texts.length; at += TEXTS_PER_CALL)
        vectors.push(...(await embedAccepted(call, texts.slice(at, at + TEXTS_PER_CALL))));
      return vectors;
    },
  };
}

/** A text that every model accepts. */
const PLAIN_TEXT = 'text';

/** Of refused texts, finds those that are the reason; throws if the model refuses any text. */
async function embedAccepted(
  call: (texts: readonly string[]) => Promise<readonly Vector[]>,
  texts: readonly string[],
): Promise<readonly (Vector | undefined)[]> {
  try {
    return await call(texts);
  } catch (error) {
    if (!(error instanceof ModelError) || error.kind !== 'unknown') throw error;
    if (texts.length === 1) {
      await call([PLAIN_TEXT]);
      return [undefined];
    }
    const half = Math.ceil(texts.length / 2);
    const first = await embedAccepted(call, texts.slice(0, half));
    return [...first, ...(await embedAccepted(call, texts.slice(half)))];
  }
}

async function readText(reply: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of reply) {
    text += piece;
    if (text.length > MAX_REPLY_CHARACTERS)
      throw createModelError('server', 'the embeddings are larger than any model makes them');
  }
  return text;
}

function parseReply(text: string, count: number) {
  const { data, error } = Reply.safeParse(parseJson(text));
  if (error) throw createModelError('server', `not a list of embeddings: ${error.message}`);
  const sorted = data.data.toSorted((a, b) => a.index - b.index);
  if (sorted.length !== count || sorted.some(({ index }, i) => index !== i))
    throw createModelError('server', `${sorted.length} embeddings for ${count} texts`);
  return {
    vectors: sorted.map(({ embedding }) => toVector(embedding)),
    tokens: data.usage?.total_tokens,
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
