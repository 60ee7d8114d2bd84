import type { ModelUsage } from '@sibyl/plugin-kit/host';
import type { ReasoningEffort } from '@sibyl/protocol';
import { abortable, settlesWithin } from '@sibyl/server-kit';
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

/** What a server says about its model. */
export interface ModelDetails {
  readonly contextTokens?: number | undefined;
  readonly vision?: boolean | undefined;
  readonly tools?: boolean | undefined;
  readonly reasoning?: boolean | undefined;
  /** Whether the server may say something else after its first answer. */
  readonly isProvisional?: boolean | undefined;
}

/** What a model may turn out not to support. */
export type ModelFeature = 'vision' | 'tools' | 'reasoning' | 'structuredOutput';

interface ModelFactsOptions {
  /** Overrides everything else. */
  readonly settings?: ModelSettings;
  /** Used until something better is known. */
  readonly defaults?: ModelSettings;
  /** Asks the model's server. */
  readonly discover?: (signal: AbortSignal) => Promise<ModelDetails>;
}

/** Servers restart with other settings. */
const FRESH_MS = 10 * 60_000;
const RETRY_MS = 30_000;
const DISCOVERY_TIMEOUT_MS = 5_000;

/** Prompts below this are too small to learn from. */
const LEAST_ESTIMATE = 200;
/** A ratio outside of this is a mistake of the server. */
const RATIOS = { min: 0.4, max: 4 };
const LEARNING_RATE = 0.3;
/** The share of the window for the answer, and the most. */
const ANSWER_SHARE = 0.25;
const MAX_ANSWER_TOKENS = 4096;
const MILLION = 1_000_000;

/** What is known about a model: configured, looked up, discovered, or learned from its answers and errors. */
export class ModelFacts {
  readonly settings: ModelSettings;
  /** Real tokens per estimated token. */
  tokenRatio = 1;
  private readonly defaults: ModelSettings;
  private readonly discover: ModelFactsOptions['discover'];
  private readonly refused = new Set<ModelFeature>();
  private details: ModelDetails = {};
  private discovery: Promise<void> | undefined;
  private freshUntil = Number.NEGATIVE_INFINITY;
  private wasAsked = false;

  constructor({ settings = {}, defaults = {}, discover }: ModelFactsOptions = {}) {
    this.settings = settings;
    this.defaults = defaults;
    this.discover = discover;
  }

  /** Whether it accepts images; a model about which nothing is known is tried. */
  get vision(): boolean {
    return this.supports('vision') ?? true;
  }

  get tools(): boolean {
    return this.supports('tools') ?? true;
  }

  /** Whether it can be forced to follow a schema; undefined if nothing is known. */
  get structuredOutput(): boolean | undefined {
    return this.supports('structuredOutput');
  }

  get reasoning(): boolean | undefined {
    return this.supports('reasoning');
  }

  /** How much to ask it to reason: `default` is as much as it wants, undefined asks for nothing. */
  chooseEffort(
    asked: ReasoningEffort | 'omit' | undefined,
  ): ReasoningEffort | 'default' | undefined {
    if (asked === 'omit' || this.reasoning === false) return undefined;
    const { reasoning } = this.settings;
    if (asked) return asked;
    if (typeof reasoning === 'string') return reasoning;
    return this.reasoning ? 'default' : undefined;
  }

  /** The context window in tokens, if it is known. */
  get contextTokens(): number | undefined {
    const { settings, details, defaults } = this;
    return settings.contextTokens ?? details.contextTokens ?? defaults.contextTokens;
  }

  /** The most tokens of a prompt, so that the answer fits into the window too; infinite if it is not known. */
  get promptTokens(): number {
    const { contextTokens } = this;
    if (contextTokens === undefined) return Number.POSITIVE_INFINITY;
    const answer = Math.min(this.settings.outputTokens ?? MAX_ANSWER_TOKENS, MAX_ANSWER_TOKENS);
    return contextTokens - Math.min(answer, Math.floor(contextTokens * ANSWER_SHARE));
  }

  /** Asks the server what it knows, unless it said so recently. Never fails; waits only for the first attempt, shortly. */
  async refresh(signal: AbortSignal): Promise<void> {
    if (!this.discover || performance.now() < this.freshUntil) return;
    this.discovery ??= this.runDiscovery(this.discover).finally(() => {
      this.discovery = undefined;
    });
    const { discovery } = this;
    if (this.wasAsked) return;
    await abortable(() => settlesWithin(DISCOVERY_TIMEOUT_MS, discovery), signal);
  }

  /** Remembers that a call failed because of this feature. */
  refuse(feature: ModelFeature): void {
    this.refused.add(feature);
  }

  /** Remembers the window that an error named. */
  learnContextTokens(contextTokens: number): void {
    this.details = { ...this.details, contextTokens };
    this.freshUntil = Math.max(this.freshUntil, performance.now() + RETRY_MS);
  }

  /** Compares an estimate with what the model reported. */
  learnTokens(estimated: number, reported: number): void {
    const observed = reported / estimated;
    if (estimated < LEAST_ESTIMATE || !(observed >= RATIOS.min && observed <= RATIOS.max)) return;
    this.tokenRatio += (observed - this.tokenRatio) * LEARNING_RATE;
  }

  /** The price of a call; undefined if the prices are not configured. */
  computeCost({ input, output, cached }: ModelUsage): number | undefined {
    const { prices } = this.settings;
    if (!prices) return undefined;
    const { cachedInput = prices.input } = prices;
    const uncached = Math.max(0, input - cached);
    return (uncached * prices.input + cached * cachedInput + output * prices.output) / MILLION;
  }

  private supports(feature: ModelFeature): boolean | undefined {
    const set = this.settings[feature];
    if (set !== undefined) return set !== false;
    if (this.refused.has(feature)) return false;
    const found = feature === 'structuredOutput' ? undefined : this.details[feature];
    return found ?? (this.defaults[feature] as boolean | undefined);
  }

  private async runDiscovery(discover: NonNullable<ModelFactsOptions['discover']>): Promise<void> {
    try {
      const found = await discover(AbortSignal.timeout(DISCOVERY_TIMEOUT_MS));
      this.details = { ...this.details, ...found };
      this.freshUntil = performance.now() + (found.isProvisional ? RETRY_MS : FRESH_MS);
    } catch {
      // The model may work without: its errors report the rest.
      this.freshUntil = performance.now() + RETRY_MS;
    }
    this.wasAsked = true;
  }
}
