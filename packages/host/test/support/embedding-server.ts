import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

/** Words with the same meaning; each group is a dimension. */
const MEANINGS = [
  ['car', 'automobile', 'vehicle', 'drive'],
  ['doctor', 'physician', 'hospital'],
  ['bread', 'bakery', 'loaf'],
];

/** An embedding model that knows a few synonyms. */
export interface EmbeddingServer {
  readonly env: Readonly<Record<string, string>>;
  /** The texts of all requests. */
  readonly texts: readonly string[];
  /** Answers with this status from now on. */
  fail(status: number | undefined): void;
  /** Refuses requests with a text that contains this word. */
  refuse(word: string): void;
  close(): void;
}

export async function startEmbeddingServer(): Promise<EmbeddingServer> {
  const texts: string[] = [];
  let failure: number | undefined;
  const refused = new Set<string>();
  const server = createServer(async (request, response) => {
    const { input } = (await json(request)) as { input: string[] };
    if (failure !== undefined || request.url !== '/v1/embeddings')
      return void response.writeHead(failure ?? 404).end('{"error":{"message":"no"}}');
    if (input.some((text) => [...refused].some((word) => text.includes(word))))
      return void response.writeHead(400).end('{"error":{"message":"input is not valid"}}');
    texts.push(...input);
    const data = input.map((text, index) => ({ index, embedding: embed(text) })).reverse();
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ data, usage: { total_tokens: 10 * input.length } }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    env: {
      EMBEDDING_MODEL: 'openai-compatible/synonyms',
      EMBEDDING_BASE_URL: `http://127.0.0.1:${port}/v1`,
    },
    texts,
    fail: (status) => {
      failure = status;
    },
    refuse: (word) => void refused.add(word),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function embed(text: string): number[] {
  const words = text.toLowerCase().split(/\W+/);
  const count = (group: readonly string[]) => words.filter((word) => group.includes(word)).length;
  return [...MEANINGS.map(count), 0.01];
}
