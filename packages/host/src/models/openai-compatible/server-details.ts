import type { ModelDetails } from '../model-facts.js';
import { fetchJson } from './http-client.js';

export interface ModelServer {
  /** The base of its routes, ending with `/v1` or similar, without a trailing slash. */
  readonly baseUrl: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The model's id on the server. */
  readonly name: string;
}

/** Asks a server what it knows about its model: the standard list first, then the routes of common servers. */
export async function discoverDetails(
  server: ModelServer,
  signal: AbortSignal,
): Promise<ModelDetails> {
  const client = new DetailsClient(server, signal);
  const entry = await client.findEntry();
  const listed = readEntry(entry);
  // Its list has the window of the training, which is larger than the one of the process.
  if (entry?.owned_by !== 'llamacpp' && listed.contextTokens !== undefined) return listed;
  const own =
    (await client.askLlamaCpp()) ?? (await client.askOllama()) ?? (await client.askLiteLlm());
  return { ...listed, ...own };
}

type Fields = Record<string, unknown>;

class DetailsClient {
  private readonly server: ModelServer;
  private readonly signal: AbortSignal;
  private readonly root: string;

  constructor(server: ModelServer, signal: AbortSignal) {
    this.server = server;
    this.signal = signal;
    this.root = server.baseUrl.replace(/\/v\d+$/, '');
  }

  /** The model in the list of the server. */
  async findEntry(): Promise<Fields | undefined> {
    const { baseUrl, name } = this.server;
    const list = await this.get(`${baseUrl}/models`);
    const entries = readList(list?.data ?? list?.models);
    const found = entries.find((entry) =>
      [entry.id, entry.name, entry.model, entry.canonical_slug].includes(name),
    );
    // A server with one model answers with it under any name.
    return found ?? (entries.length === 1 ? entries[0] : undefined);
  }

  async askLlamaCpp(): Promise<ModelDetails | undefined> {
    const props = await this.get(`${this.root}/props`);
    const contextTokens = readTokens(asFields(props?.default_generation_settings).n_ctx);
    if (contextTokens === undefined) return undefined;
    const { vision } = asFields(props?.modalities);
    return { contextTokens, ...(typeof vision === 'boolean' && { vision }) };
  }

  async askOllama(): Promise<ModelDetails | undefined> {
    const version = await this.get(`${this.root}/api/version`);
    if (typeof version?.version !== 'string') return undefined;
    const { name } = this.server;
    const [running, shown] = await Promise.all([
      this.get(`${this.root}/api/ps`),
      this.get(`${this.root}/api/show`, JSON.stringify({ model: name })),
    ]);
    const loaded = readList(running?.models).find((entry) =>
      [entry.name, entry.model].some((id) => id === name || id === `${name}:latest`),
    );
    return readOllamaModel(shown ?? {}, readTokens(loaded?.context_length));
  }

  async askLiteLlm(): Promise<ModelDetails | undefined> {
    const info = await this.get(`${this.root}/model/info`);
    const entry = readList(info?.data).find(({ model_name }) => model_name === this.server.name);
    if (!entry) return undefined;
    const known = asFields(entry.model_info);
    return clean({
      contextTokens: readTokens(known.max_input_tokens) ?? readTokens(known.max_tokens),
      vision: readFlag(known.supports_vision),
      tools: readFlag(known.supports_function_calling),
      reasoning: readFlag(known.supports_reasoning),
    });
  }

  private async get(url: string, body?: string): Promise<Fields | undefined> {
    const { headers } = this.server;
    const { signal } = this;
    const found = await fetchJson({
      url: new URL(url),
      headers,
      signal,
      ...(body !== undefined && { body }),
    });
    return found === undefined ? undefined : asFields(found);
  }
}

/** Names of the window in the lists of servers, the one in use before the one of the training. */
const WINDOW_FIELDS = [
  'loaded_context_length',
  'max_model_len',
  'context_length',
  'context_window',
  'max_context_length',
  'max_input_tokens',
];

function readEntry(entry: Fields = {}): ModelDetails {
  const { top_provider, architecture, meta, capabilities, supported_parameters } = entry;
  const windows = [
    ...WINDOW_FIELDS.map((field) => entry[field]),
    asFields(top_provider).context_length,
    asFields(meta).n_ctx,
    asFields(meta).n_ctx_train,
  ];
  const modalities = asFields(architecture).input_modalities;
  const parameters = Array.isArray(supported_parameters) ? supported_parameters : undefined;
  return clean({
    contextTokens: windows.map(readTokens).find((tokens) => tokens !== undefined),
    vision:
      readFlag(asFields(capabilities).vision) ??
      (Array.isArray(modalities) ? modalities.includes('image') : undefined) ??
      (entry.type === 'vlm' ? true : undefined),
    tools: readFlag(asFields(capabilities).function_calling) ?? parameters?.includes('tools'),
    reasoning: parameters?.includes('reasoning'),
  });
}

/** What Ollama uses unless a model or the server sets another window; it truncates longer prompts without an error. */
const OLLAMA_CONTEXT_TOKENS = 4096;

function readOllamaModel(shown: Fields, loaded: number | undefined): ModelDetails {
  const info = asFields(shown.model_info);
  const trained = Object.entries(info).find(([name]) => name.endsWith('.context_length'))?.[1];
  const set = readTokens(/^num_ctx\s+(\d+)/m.exec(String(shown.parameters ?? ''))?.[1]);
  const assumed = Math.min(readTokens(trained) ?? OLLAMA_CONTEXT_TOKENS, OLLAMA_CONTEXT_TOKENS);
  const { capabilities } = shown;
  const can = (word: string) =>
    Array.isArray(capabilities) ? capabilities.includes(word) : undefined;
  return clean({
    contextTokens: loaded ?? set ?? assumed,
    vision: can('vision'),
    tools: can('tools'),
    reasoning: can('thinking'),
    isProvisional: loaded === undefined,
  });
}

function readList(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(asFields) : [];
}

function asFields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

function readTokens(value: unknown): number | undefined {
  const tokens = Number(value ?? Number.NaN);
  return Number.isInteger(tokens) && tokens > 0 ? tokens : undefined;
}

function readFlag(value: unknown): boolean | undefined {
  return typeof value === 'boolean' ? value : undefined;
}

/** Without the fields that are not known, so that they replace nothing. */
function clean(details: ModelDetails): ModelDetails {
  return Object.fromEntries(Object.entries(details).filter(([, value]) => value !== undefined));
}
