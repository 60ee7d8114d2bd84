import type { ModelSettings } from '../config/environment.js';
import type { ProviderName } from '../config/models-config.js';

type Defaults = Pick<
  ModelSettings,
  'vision' | 'reasoning' | 'contextTokens' | 'structuredOutput' | 'tools'
>;

/** A rule for the models of a provider whose names match. */
type Rule = readonly [name: RegExp, defaults: Defaults];

/**
 * What is known about models by their names; every rule that matches adds to the ones before it. The windows of
 * self-hosted models are not listed, because they depend on the server.
 */
const rules: Readonly<Record<ProviderName, readonly Rule[]>> = {
  openai: [
    [/./, { vision: true, structuredOutput: true, contextTokens: 128_000 }],
    [/^gpt-3/, { vision: false, structuredOutput: false, contextTokens: 16_385 }],
    [/^gpt-4($|-0)/, { vision: false, structuredOutput: false, contextTokens: 8_192 }],
    [/^gpt-4\.1/, { contextTokens: 1_047_576 }],
    [/^o\d/, { reasoning: true, contextTokens: 200_000 }],
    [/^o\d-mini/, { vision: false }],
    [/^o4-mini/, { vision: true }],
    [/^gpt-[5-9]/, { reasoning: true, contextTokens: 400_000 }],
    [/^gpt-[5-9].*-chat/, { reasoning: false }],
  ],
  anthropic: [
    [/./, { vision: true, contextTokens: 200_000 }],
    [/^claude-[a-z]+-(4-[5-9]|[5-9])/, { structuredOutput: true }],
    [/^claude-[a-z]+-(4-[6-9]|[5-9])/, { reasoning: true }],
  ],
  google: [
    [/./, { vision: true, structuredOutput: true, contextTokens: 1_048_576 }],
    [/^gemini-(2\.5|[3-9])(?!.*(lite|image|tts|audio|live|computer))/, { reasoning: true }],
    [/^gemma/, { vision: false, structuredOutput: false, contextTokens: 32_768 }],
    [/^gemma-?[3-9]/, { vision: true, contextTokens: 131_072 }],
  ],
  'openai-compatible': [
    [/llama-?3(?!.*vision)|mixtral|deepseek|gpt-oss|codestral|starcoder/i, { vision: false }],
    [
      /vision|vl\b|-vl|llava|pixtral|minicpm-v|moondream|gpt-4o|gpt-4\.1|gpt-[5-9]|claude|gemini|gemma-?[3-9]|llama-?4|qwen3\.5|grok-[4-9]|mistral-(small|medium)-3/i,
      { vision: true },
    ],
  ],
};

/** What is known about a model by its name. */
export function findDefaults(provider: ProviderName, name: string): Defaults {
  const matching = rules[provider].filter(([pattern]) => pattern.test(name));
  return Object.assign({}, ...matching.map(([, defaults]) => defaults));
}
