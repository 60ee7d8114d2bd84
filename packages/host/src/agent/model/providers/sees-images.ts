import type { ProviderName } from '../../../config/model-providers.js';

const SEEING =
  /vision|\bvl\b|-vl|llava|pixtral|gpt-4o|gpt-4\.1|gpt-[5-9]|claude|gemini|gemma-?3|llama-?4|qwen3\.5|mistral-(small|medium)-3/i;
const BLIND = /^(gpt-3|o1-mini|o3-mini|gemma)/;

/** Whether a model takes images, as far as its name tells. */
export function seesImages(provider: ProviderName, name: string): boolean {
  return provider === 'openai-compatible' ? SEEING.test(name) : !BLIND.test(name);
}
