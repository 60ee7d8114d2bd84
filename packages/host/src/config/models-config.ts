import type { LanguageModelV4 } from '@ai-sdk/provider';
import type { ConfigIssue, Variables } from '@sibyl/server-kit/environment';
import type { Environment, ModelSettings, ModelSettingsById } from './environment.js';

export interface ProviderAccess {
  readonly apiKey: string | undefined;
  readonly baseUrl: string | undefined;
}

/** Which models may answer, and how to reach their providers. */
export type ModelsConfig = ReturnType<typeof buildModelsConfig>;

/** Adds models of the AI SDK; without a small one, the main one does its work too. */
export function addLanguageModels(
  config: ModelsConfig,
  main: LanguageModelV4 | undefined,
  small: LanguageModelV4 | undefined,
): ModelsConfig {
  const getId = ({ provider, modelId }: LanguageModelV4) => `${provider}/${modelId}`;
  const mainId = main ? getId(main) : config.main;
  const defaultSmallId = main ? mainId : config.small;
  const smallId = small ? getId(small) : defaultSmallId;
  const own = [main, small].flatMap((model) => (model ? [[getId(model), model] as const] : []));
  const others = config.choices.filter((id) => id !== config.main && id !== config.small);
  return Object.freeze({
    ...config,
    main: mainId,
    small: smallId,
    choices: Object.freeze([...new Set([mainId, smallId, ...others])]),
    languageModels: new Map(own),
  });
}

export function buildModelsConfig(env: Environment) {
  const main = env.MODEL ?? defaultMain(env);
  const small = env.MODEL_SMALL ?? defaultSmall(main);
  const offered = env.MODEL ? [] : keyedProviders(env).flatMap(defaultIds);
  return Object.freeze({
    /** Ids such as `openai/gpt-…`, or `offline`. */
    main,
    small,
    /** Every id a message may ask for, the main one first. */
    choices: Object.freeze([...new Set([main, small, ...offered, ...env.MODEL_CHOICES])]),
    providers: Object.freeze(readProviderAccess(env)),
    settings: env.MODEL_SETTINGS,
    /** Ids of models that answer while the chosen one is down. */
    fallbacks: Object.freeze(env.MODEL_FALLBACK),
    firstPartSeconds: env.MODEL_FIRST_PART_TIMEOUT_SECONDS,
    stallSeconds: env.MODEL_STALL_TIMEOUT_SECONDS,
    /** Models that the application passes in code, by id. */
    languageModels: new Map() as ReadonlyMap<string, LanguageModelV4>,
    /** Undefined: texts are found by their words only. */
    embedding: readEmbedding(env),
  });
}

/** Where providers serve embeddings in the format of OpenAI. */
const embeddingUrls: Readonly<Record<string, string>> = {
  openai: 'https://api.openai.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta/openai',
};

/** The model that compares texts by meaning. */
export type EmbeddingConfig = NonNullable<ReturnType<typeof readEmbedding>>;

function readEmbedding(env: Environment) {
  const id = env.EMBEDDING_MODEL;
  const provider = id && findProvider(id);
  if (!id || !provider) return undefined;
  const { keyVariable, baseUrlVariable } = modelProviders[provider];
  // The address of Google's own format is another one.
  const usual = provider === 'google' ? undefined : env[baseUrlVariable];
  const baseUrl = env.EMBEDDING_BASE_URL ?? usual ?? embeddingUrls[provider] ?? '';
  const apiKey = env.EMBEDDING_API_KEY ?? env[keyVariable];
  const name = id.slice(provider.length + 1);
  return Object.freeze({ id, /** The model's id on the server. */ name, baseUrl, apiKey });
}

function readProviderAccess(env: Environment): Record<ProviderName, ProviderAccess> {
  const entries = providerNames.map((name) => {
    const { keyVariable, baseUrlVariable } = modelProviders[name];
    const access = { apiKey: env[keyVariable], baseUrl: env[baseUrlVariable] };
    return [name, Object.freeze(access)];
  });
  return Object.fromEntries(entries);
}

function keyedProviders(env: Partial<Record<keyof Environment, unknown>>): ProviderName[] {
  return providerNames.filter(
    (name) => modelProviders[name].defaults && env[modelProviders[name].keyVariable],
  );
}

function defaultIds(name: ProviderName): string[] {
  return Object.values(modelProviders[name].defaults ?? {}).map((model) => `${name}/${model}`);
}

function defaultMain(env: Environment): string {
  return keyedProviders(env).flatMap(defaultIds)[0] ?? OFFLINE;
}

function defaultSmall(main: string): string {
  const provider = findProvider(main);
  const small = provider && modelProviders[provider].defaults?.small;
  return small ? `${provider}/${small}` : main;
}

/** Checks that the chosen models can be reached; the schema checks each value by itself. */
export function checkModels(env: Variables): ConfigIssue[] {
  const asked = [
    ...readModelIds(env, 'MODEL'),
    ...readModelIds(env, 'MODEL_SMALL'),
    ...readModelIds(env, 'MODEL_CHOICES'),
    ...readModelIds(env, 'MODEL_FALLBACK'),
  ];
  const issues = asked.flatMap(({ variable, id }) => checkAccess(env, variable, id) ?? []);
  const embedding = readModelIds(env, 'EMBEDDING_MODEL');
  issues.push(...embedding.flatMap(({ id }) => checkEmbedding(env, id) ?? []));
  asked.push(...embedding);
  if (env.MODEL_BASE_URL && !asked.some(({ id }) => id.startsWith('openai-compatible/')))
    issues.push({
      subject: 'MODEL_BASE_URL (host)',
      problem: 'set, but no model uses it',
      remedy: 'Set MODEL=openai-compatible/<model-id> too, with an id that server knows',
    });
  return issues;
}

function readModelIds(env: Variables, variable: string): { variable: string; id: string }[] {
  const ids = (env[variable] ?? '').split(',').map((id) => id.trim());
  return ids.filter((id) => id.includes('/')).map((id) => ({ variable, id }));
}

function checkAccess(env: Variables, variable: string, id: string): ConfigIssue | undefined {
  const provider = findProvider(id);
  if (!provider)
    return {
      subject: `${variable} (host)`,
      problem: `unknown provider ${JSON.stringify(id.slice(0, id.indexOf('/')))}`,
      remedy: `Begin it with one of ${providerNames.join(', ')}, as in openai/gpt-6-luna, or set MODEL=${OFFLINE}`,
    };
  const { keyVariable, baseUrlVariable } = modelProviders[provider];
  const needed = provider === 'openai-compatible' ? baseUrlVariable : keyVariable;
  if (env[needed]) return undefined;
  return {
    subject: `${variable} (host)`,
    problem: `needs ${needed} for ${provider}, which is not set`,
    remedy: `Set ${needed}, choose another model, or unset ${variable} for the default`,
  };
}

function checkEmbedding(env: Variables, id: string): ConfigIssue | undefined {
  const variable = 'EMBEDDING_MODEL';
  if (findProvider(id) === 'anthropic')
    return {
      subject: `${variable} (host)`,
      problem: 'Anthropic has no embedding models',
      remedy: `Choose one of another provider, such as openai/text-embedding-3-small, or unset ${variable}`,
    };
  const isCompatible = findProvider(id) === 'openai-compatible';
  const own = isCompatible ? env.EMBEDDING_BASE_URL : env.EMBEDDING_API_KEY;
  return own && findProvider(id) ? undefined : checkAccess(env, variable, id);
}

export type ProviderName = 'openai' | 'anthropic' | 'google' | 'openai-compatible';

/** The id of the built-in model, which has no provider and needs no key. */
export const OFFLINE = 'offline';

interface ModelProvider {
  readonly keyVariable: keyof Environment & `${string}_API_KEY`;
  readonly baseUrlVariable: keyof Environment & `${string}_BASE_URL`;
  /** Used if only a key is set; an openai-compatible server has none. */
  readonly defaults?: { readonly main: string; readonly small: string };
}

/** If several keys are set and MODEL is not, the first provider in this order answers. */
const modelProviders: Readonly<Record<ProviderName, ModelProvider>> = {
  openai: {
    keyVariable: 'OPENAI_API_KEY',
    baseUrlVariable: 'OPENAI_BASE_URL',
    defaults: { main: 'gpt-6-astra', small: 'gpt-6-luna' },
  },
  anthropic: {
    keyVariable: 'ANTHROPIC_API_KEY',
    baseUrlVariable: 'ANTHROPIC_BASE_URL',
    defaults: { main: 'claude-sonnet-5-5', small: 'claude-haiku-5-5' },
  },
  google: {
    keyVariable: 'GOOGLE_GENERATIVE_AI_API_KEY',
    baseUrlVariable: 'GOOGLE_GENERATIVE_AI_BASE_URL',
    defaults: { main: 'gemini-4-argon', small: 'gemini-3.5-flash-lite' },
  },
  'openai-compatible': { keyVariable: 'MODEL_API_KEY', baseUrlVariable: 'MODEL_BASE_URL' },
};

const providerNames = Object.keys(modelProviders) as readonly ProviderName[];

/** The provider that a model id begins with; undefined if it is unknown. */
export function findProvider(modelId: string): ProviderName | undefined {
  const name = modelId.slice(0, modelId.indexOf('/'));
  return providerNames.find((known) => known === name);
}

/** The settings of a model: those of its id, otherwise of the longest key with `*` that matches. */
export function findSettings(all: ModelSettingsById, id: string): ModelSettings {
  const exact = all[id];
  if (exact) return exact;
  const matching = Object.keys(all).filter(
    (key) => key.endsWith('*') && id.startsWith(key.slice(0, -1)),
  );
  const [longest] = matching.sort((a, b) => b.length - a.length);
  return (longest && all[longest]) || {};
}
