import type { Environment } from './environment.js';

export type ProviderName = 'openai' | 'anthropic' | 'google' | 'openai-compatible';

/** The built-in model's whole id: it has no provider and needs no key. */
export const OFFLINE = 'offline';

interface ModelProvider {
  readonly keyVariable: keyof Environment & `${string}_API_KEY`;
  readonly baseUrlVariable: keyof Environment & `${string}_BASE_URL`;
  /** The models used when a key is all that is given; a server of one's own has none. */
  readonly defaults?: { readonly main: string; readonly small: string };
}

/** Every provider; of several keys without MODEL, the first in this order answers. */
export const modelProviders: Readonly<Record<ProviderName, ModelProvider>> = {
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

export const providerNames = Object.keys(modelProviders) as readonly ProviderName[];

/** The provider a model id begins with, if it is one of ours. */
export function providerOf(modelId: string): ProviderName | undefined {
  const name = modelId.slice(0, modelId.indexOf('/'));
  return providerNames.find((known) => known === name);
}
