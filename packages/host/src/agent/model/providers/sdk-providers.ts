import type { LanguageModelV4, SharedV4ProviderOptions } from '@ai-sdk/provider';
import type { ProviderName } from '../../../config/model-providers.js';
import type { ProviderAccess } from '../../../config/models-config.js';

interface SdkProvider {
  /** Imports the provider's package only now: none of them is read at the start of the process. */
  load(name: string, access: ProviderAccess): Promise<LanguageModelV4>;
  optionsFor(name: string): SharedV4ProviderOptions | undefined;
}

const ALWAYS_THINKING = /^claude-(sonnet-5-5|opus-5-5|fable-5)/;
const SHOWS_THOUGHTS = /^gemini-(2\.5|[3-9])(?!.*(lite|image|tts|audio|live|computer))/;

/** The providers reached through the AI SDK; addresses are given, so that it reads no environment. */
export const sdkProviders: Readonly<
  Record<Exclude<ProviderName, 'openai-compatible'>, SdkProvider>
> = {
  openai: {
    async load(name, { apiKey = '', baseUrl = 'https://api.openai.com/v1' }) {
      const { createOpenAI } = await import('@ai-sdk/openai');
      return createOpenAI({ apiKey, baseURL: baseUrl })(name);
    },
    // Not kept at OpenAI: its reasoning then comes sealed with the answer, and goes back with it.
    optionsFor: () => ({ openai: { store: false } }),
  },
  anthropic: {
    async load(name, { apiKey = '', baseUrl = 'https://api.anthropic.com/v1' }) {
      const { createAnthropic } = await import('@ai-sdk/anthropic');
      return createAnthropic({ apiKey, baseURL: baseUrl })(name);
    },
    optionsFor: (name) => ({
      anthropic: {
        cacheControl: { type: 'ephemeral' },
        includePings: true,
        ...(ALWAYS_THINKING.test(name) && {
          thinking: { type: 'adaptive', display: 'summarized' },
        }),
      },
    }),
  },
  google: {
    async load(
      name,
      { apiKey = '', baseUrl = 'https://generativelanguage.googleapis.com/v1beta' },
    ) {
      const { createGoogle } = await import('@ai-sdk/google');
      return createGoogle({ apiKey, baseURL: baseUrl })(name);
    },
    optionsFor: (name) =>
      SHOWS_THOUGHTS.test(name)
        ? { google: { thinkingConfig: { includeThoughts: true } } }
        : undefined,
  },
};
