import type { LanguageModelV4 } from '@ai-sdk/provider';
import type { ModelList } from '@sibyl/protocol';
import {
  findProvider,
  findSettings,
  type ModelsConfig,
  OFFLINE,
  type ProviderAccess,
  type ProviderName,
} from '../config/models-config.js';
import { createAiSdkModel, type Effort, type SdkOptions } from './ai-sdk-model.js';
import type { Model, ModelError, ModelRole } from './model.js';
import { findDefaults, ModelFacts } from './model-facts.js';
import { createOfflineModel } from './offline/offline-model.js';
import { createOpenAiCompatibleModel } from './openai-compatible/openai-compatible-model.js';
import { type RetryOptions, withFallbacks, withRetry, withTimeouts } from './retry.js';

/** The models of this host. */
export interface Models {
  get(role: ModelRole): Model;
  /** Returns the model that a message asks for, if it is listed. */
  find(id: string): Model | undefined;
  /** The reply of `GET /models`. */
  list(): ModelList;
}

export interface ModelsOptions {
  /** Called for every error of a provider, also if the call is retried or another model answers. */
  readonly onFailure?: (modelId: string, error: ModelError, isRetried: boolean) => void;
}

/** Creates the configured models; loads and calls a provider only when it is first used. */
export function createModels(config: ModelsConfig, options: ModelsOptions = {}): Models {
  const fallbacks = config.fallbacks.map((id) => createModel(id, config, options));
  const create = (id: string) => withFallbacks(createModel(id, config, options), fallbacks);
  const models = new Map(config.choices.map((id) => [id, create(id)]));
  const get = (id: string) => models.get(id) ?? create(id);
  const byRole: Record<ModelRole, Model> = {
    main: get(config.main),
    subagent: get(config.main),
    utility: get(config.small),
  };
  return {
    get: (role) => byRole[role],
    find: (id) => models.get(id),
    list: () => toModelList([...models.values()], config.main),
  };
}

function createModel(id: string, config: ModelsConfig, { onFailure }: ModelsOptions): Model {
  if (id === OFFLINE) return createOfflineModel();
  return createProviderModel(id, config, {
    onFailure: (error, isRetried) => onFailure?.(id, error, isRetried),
  });
}

function toModelList(models: readonly Model[], main: string): ModelList {
  return {
    models: models.map(({ id, label, provider, facts }) => ({
      id,
      label,
      provider,
      isDefault: id === main,
      vision: facts.vision,
      tools: facts.tools,
    })),
    default: main,
  };
}

/** A model that the application passes in code. */
const createGivenModel = (id: string, model: LanguageModelV4, facts: ModelFacts): Model =>
  createAiSdkModel({
    id,
    label: model.modelId,
    provider: model.provider,
    facts,
    load: async () => model,
  });

/** Creates the model of a provider, with retries and timeouts. */
export function createProviderModel(
  id: string,
  config: ModelsConfig,
  retries: RetryOptions = {},
): Model {
  const model = createBareModel(id, config);
  const timeouts = {
    firstPartMs: config.firstPartSeconds * 1000,
    stallMs: config.stallSeconds * 1000,
  };
  return withRetry(withTimeouts(model, timeouts), retries);
}

function createBareModel(id: string, config: ModelsConfig): Model {
  const { providers, languageModels } = config;
  const settings = findSettings(config.settings, id);
  const given = languageModels?.get(id);
  if (given) return createGivenModel(id, given, new ModelFacts({ settings }));
  const provider = findProvider(id);
  if (!provider) throw new Error(`No provider for the model ${id}`);
  const name = id.slice(provider.length + 1);
  const access = providers[provider];
  const known = { settings, defaults: findDefaults(provider, name) };
  const info = { id, label: name, provider };
  if (provider === 'openai-compatible')
    return createOpenAiCompatibleModel({ ...info, ...known, name, access });
  const { load, optionsFor } = sdkProviders[provider];
  return createAiSdkModel({
    ...info,
    facts: new ModelFacts(known),
    load: () => load(name, access),
    optionsFor: (effort) => optionsFor(name, effort),
  });
}

/** The packages of providers may be left out of an installation that does not use them. */
async function loadSdk<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    throw new Error(`This model needs the package ${name}: install it`, { cause });
  }
}

interface SdkProvider {
  /** Imports the provider's package, which is not loaded at startup. */
  load(name: string, access: ProviderAccess): Promise<LanguageModelV4>;
  optionsFor(name: string, effort: Effort): SdkOptions;
}

/** The effort for the AI SDK, which has no word for the model's own default. */
const toSdkEffort = (effort: Effort): Pick<SdkOptions, 'reasoning'> =>
  effort && effort !== 'default' ? { reasoning: effort } : {};

const ALWAYS_THINKING = /^claude-(sonnet-5-5|opus-5-5|fable-5)/;

/** The providers of the AI SDK; their addresses are explicit, so that it does not read the environment. */
const sdkProviders: Readonly<Record<Exclude<ProviderName, 'openai-compatible'>, SdkProvider>> = {
  openai: {
    async load(name, { apiKey = '', baseUrl = 'https://api.openai.com/v1' }) {
      const { createOpenAI } = await loadSdk('@ai-sdk/openai', () => import('@ai-sdk/openai'));
      return createOpenAI({ apiKey, baseURL: baseUrl })(name);
    },
    // Without storage at OpenAI, the encrypted reasoning is part of the answer and is sent back with it.
    optionsFor: (_, effort) => ({
      ...toSdkEffort(effort),
      providerOptions: {
        openai: {
          store: false,
          strictJsonSchema: false,
          ...(effort && effort !== 'none' && { reasoningSummary: 'auto' }),
        },
      },
    }),
  },
  anthropic: {
    async load(name, { apiKey = '', baseUrl = 'https://api.anthropic.com/v1' }) {
      const { createAnthropic } = await loadSdk(
        '@ai-sdk/anthropic',
        () => import('@ai-sdk/anthropic'),
      );
      return createAnthropic({ apiKey, baseURL: baseUrl })(name);
    },
    optionsFor: (name, effort) => {
      const isAlways = effort && effort !== 'none' && ALWAYS_THINKING.test(name);
      return {
        // Other models think only if they are asked to.
        ...toSdkEffort(effort === 'default' && !isAlways ? 'medium' : effort),
        providerOptions: {
          anthropic: {
            cacheControl: { type: 'ephemeral' },
            includePings: true,
            ...(isAlways && { thinking: { type: 'adaptive', display: 'summarized' } }),
          },
        },
      };
    },
  },
  google: {
    async load(
      name,
      { apiKey = '', baseUrl = 'https://generativelanguage.googleapis.com/v1beta' },
    ) {
      const { createGoogle } = await loadSdk('@ai-sdk/google', () => import('@ai-sdk/google'));
      return createGoogle({ apiKey, baseURL: baseUrl })(name);
    },
    optionsFor: (_, effort) => ({
      ...toSdkEffort(effort),
      ...(effort &&
        effort !== 'none' && {
          providerOptions: { google: { thinkingConfig: { includeThoughts: true } } },
        }),
    }),
  },
};
