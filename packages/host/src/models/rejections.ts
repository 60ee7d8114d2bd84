/** Why a model refused a call that it might accept in another form. */
export type Rejection =
  | {
      readonly of: 'context';
      /** The window, if the error names it. */
      readonly limit?: number | undefined;
      /** The size of the call, if the error names it. */
      readonly requested?: number | undefined;
    }
  | {
      readonly of: 'images';
      /** Whether the model accepts no images at all, rather than not these. */
      readonly isLasting: boolean;
    }
  | { readonly of: 'tools' | 'tool-choice' | 'reasoning' | 'schema' };

/** Reads from an error reply whether another form of the call may succeed; `text` is everything that the reply says. */
export function findRejection(status: number, text: string): Rejection | undefined {
  if (OTHER_REASONS.has(status)) return undefined;
  const said = text.slice(0, MAX_LENGTH);
  if (OVERFLOW.some((pattern) => pattern.test(said)))
    return {
      of: 'context',
      limit: findNumber(LIMIT, said),
      requested: findNumber(REQUESTED, said),
    };
  if (NO_TOOLS.test(said)) return { of: 'tools' };
  if (NO_REASONING.test(said)) return { of: 'reasoning' };
  if (NO_SCHEMA.test(said)) return { of: 'schema' };
  if (NO_IMAGES.test(said)) return { of: 'images', isLasting: true };
  if (NO_CHOICE.test(said)) return { of: 'tool-choice' };
  return status < 500 && BAD_IMAGE.test(said) ? { of: 'images', isLasting: false } : undefined;
}

/** Key, credit, rate and time limits, which have nothing to do with the form of the call. */
const OTHER_REASONS: ReadonlySet<number> = new Set([401, 402, 403, 408, 429, 503, 504]);

/** Errors of gateways repeat the request, which may be long. */
const MAX_LENGTH = 8192;

/** How providers say that a prompt is too long. */
const OVERFLOW: readonly RegExp[] = [
  // OpenAI, Azure, Groq, Cerebras, llama-cpp-python, and many that copy them.
  /context_length_exceeded|model_max_prompt_tokens_exceeded|tokens_limit_reached/i,
  // OpenAI, vLLM, DeepSeek, OpenRouter, xAI.
  /maximum (context|prompt|model|input|sequence)[ -]length/i,
  /exceeds? the (context|maximum) (window|length)|exceeds? (the |its )?(model'?s? )?(max(imum)? )?context (window|length|size|limit)/i,
  // Anthropic, Fireworks.
  /prompt is too long|exceed context limit|request_too_large/i,
  // SGLang.
  /longer than the (model'?s? )?(max(imum)? )?context length/i,
  // Google.
  /token count\b.{0,40}\bexceeds/i,
  // llama.cpp and its relatives, LM Studio, Ollama.
  /exceed_context_size|available context size|context (size|length|window) (has been )?exceeded|larger than the (max )?context|exceed(s|ed)? context window/i,
  /loaded with context length|greater than the context length|input length exceeds|context (window )?overflow/i,
  /is too large to process/i,
  // LiteLLM.
  /ContextWindowExceeded/i,
  // Groq, Cerebras.
  /reduce the length of (the|your|either)/i,
  // Mistral.
  /too large for model with|invalid_request_prompt/i,
  // Text Generation Inference, Together.
  /max_new_tokens`? must be <=|`?inputs`? must have less than/i,
  // Cohere, Bedrock, Alibaba, Moonshot, MiniMax.
  /too many tokens|input is too long|range of input length|exceeded model token limit|context window exceeds/i,
  // GitHub Models, and Groq's limit of one request.
  /request (body )?too large for/i,
];

const NUMBER = '([\\d][\\d,_.]*\\d|\\d)';
const pattern = (text: string) => new RegExp(text.replaceAll('#', NUMBER), 'i');

const LIMIT: readonly RegExp[] = [
  pattern('"n_ctx":\\s*#'),
  pattern('(?:context|prompt|model|input|sequence)[ -]length(?: is|:| of(?: only)?| \\()? ?#'),
  pattern('available context size \\(#'),
  pattern('context (?:window|size) of #'),
  pattern('> # maximum'),
  pattern('context limit: .*?> #'),
  pattern('tokens allowed \\(#'),
  pattern('model with # maximum'),
  pattern('must (?:be <=|have less than) #'),
  pattern('(?:limit is|cannot exceed|token limit:|max size:|input length should be \\[1,) ?#'),
];

const REQUESTED: readonly RegExp[] = [
  pattern('"n_prompt_tokens":\\s*#'),
  pattern('too long: # tokens'),
  pattern('token count \\(#'),
  pattern('prompt contains # tokens'),
  pattern(
    '(?:resulted in|requested(?: about)?|contains|request \\(|input \\(|prompt \\(length|tokens \\(|given:) ?#',
  ),
  pattern('current length is #'),
];

function findNumber(patterns: readonly RegExp[], text: string): number | undefined {
  for (const found of patterns) {
    const value = Number(found.exec(text)?.[1]?.replace(/[,_.]/g, ''));
    if (value > 0) return value;
  }
  return undefined;
}

const NO_TOOLS =
  /does(n't| not) support (tools|tool(?![_ ]choice)|function)|(tools?|tool use|function calling) (is|are) not (supported|enabled)|no endpoints found that support tool use|"?auto"? tool choice requires/i;

const NO_REASONING =
  /reasoning[._ ](effort|summary|summaries)|(reasoning|thinking) (is|are) not supported|thinking may not be enabled|must start with a thinking block|does(n't| not) support (reasoning|thinking|adaptive)|verified to (stream|generate|use)/i;

const NO_CHOICE = /tool[_ ]?choice(?! is none)/i;

const NO_SCHEMA =
  /response_format|responseSchema|response_schema|response mime ?type|output_(format|config)|json_schema|structured outputs?/i;

const NO_IMAGES =
  /image input is not supported|(does(n't| not)|cannot) (support|accept|process|handle) (image|vision|multi-?modal)|not a (multi-?modal|vision)|images? (is|are|input is) not (supported|allowed)|support image input|mmproj|vision is not|unknown variant `image_url`|at most 0 image|missing data required for image|content must be a string|model projector/i;

const BAD_IMAGE = /\bimages?(_url)?\b/i;
