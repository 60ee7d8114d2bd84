import { type ProviderName, providerOf } from '../../../config/model-providers.js';
import type { ModelsConfig } from '../../../config/models-config.js';
import { createAiSdkModel } from '../ai-sdk/ai-sdk-model.js';
import type { Model } from '../model.js';
import { createOpenAiCompatibleModel } from '../openai-compatible/openai-compatible-model.js';
import { type RetryOptions, withRetry } from '../with-retry.js';
import { withTimeouts } from '../with-timeouts.js';
import { sdkProviders } from './sdk-providers.js';
import { seesImages } from './sees-images.js';

/** The model of a provider, with its retries and timeouts. */
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

function createBareModel(id: string, { providers }: ModelsConfig): Model {
  const provider = providerOf(id);
  if (!provider) throw new Error(`No provider for the model ${id}`);
  const name = id.slice(provider.length + 1);
  const access = providers[provider];
  const info = infoOf(id, provider, name);
  if (provider === 'openai-compatible')
    return createOpenAiCompatibleModel({ ...info, name, access });
  const { load, optionsFor } = sdkProviders[provider];
  return createAiSdkModel({
    ...info,
    load: () => load(name, access),
    providerOptions: optionsFor(name),
  });
}

function infoOf(id: string, provider: ProviderName, name: string): Omit<Model, 'stream'> {
  return { id, label: name, provider, vision: seesImages(provider, name), tools: true };
}
