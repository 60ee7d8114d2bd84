import { describe, expect, it } from 'vitest';
import { toModelError } from './model.js';
import { findRejection } from './rejections.js';

/** Replies to a prompt of 9,001 tokens by models with a window of 8,192, as far as they name these. */
const tooLong: readonly [string, number, string, object][] = [
  [
    'OpenAI',
    400,
    `{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the length of the messages.","type":"invalid_request_error","code":"context_length_exceeded"}}`,
    { limit: 8192, requested: 9001 },
  ],
  [
    'OpenAI Responses',
    400,
    '{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":"context_length_exceeded"}}',
    {},
  ],
  [
    'Anthropic',
    400,
    '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9001 tokens > 8192 maximum"}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'Anthropic with an output limit',
    400,
    '{"error":{"message":"input length and `max_tokens` exceed context limit: 7001 + 2000 > 8192, decrease input length or `max_tokens` and try again"}}',
    { limit: 8192 },
  ],
  [
    'Google',
    400,
    '{"error":{"code":400,"message":"The input token count (9001) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'an embedding model of llama.cpp',
    500,
    '{"error":{"code":500,"message":"input (9001 tokens) is too large to process. increase the physical batch size (current batch size: 8192)","type":"server_error"}}',
    { requested: 9001 },
  ],
  [
    'llama.cpp',
    400,
    '{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9001,"n_ctx":8192}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'llama.cpp of 2026',
    400,
    '{"error":{"code":400,"message":"request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error"}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'llama-cpp-python',
    500,
    '{"error":{"message":"Requested tokens (9001) exceed context window of 8192","type":"internal_server_error"}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'vLLM',
    400,
    '{"object":"error","message":"The decoder prompt (length 9001) is longer than the maximum model length of 8192","type":"BadRequestError","code":400}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'Ollama',
    400,
    '{"error":{"message":"the input length exceeds the context length","type":"api_error"}}',
    {},
  ],
  [
    'LM Studio',
    400,
    '{"error":"Trying to keep the first 9001 tokens when context the overflows. However, the model is loaded with context length of only 8192 tokens, which is not enough."}',
    { limit: 8192 },
  ],
  [
    'LiteLLM',
    400,
    `{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long","type":null,"code":"400"}}`,
    {},
  ],
  [
    'OpenRouter',
    400,
    `{"error":{"message":"This endpoint's maximum context length is 8192 tokens. However, you requested about 9001 tokens (9001 of text input). Please reduce the length of either one.","code":400}}`,
    { limit: 8192, requested: 9001 },
  ],
  [
    'Groq',
    413,
    '{"error":{"message":"Please reduce the length of the messages or completion. Current length is 9001 while limit is 8192","code":"context_length_exceeded"}}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'Groq with a limit per request',
    413,
    '{"error":{"message":"Request too large for model `x` in organization `y` on tokens per minute (TPM): Limit 8192, Requested 9001","type":"tokens","code":"rate_limit_exceeded"}}',
    { requested: 9001 },
  ],
  [
    'Mistral',
    400,
    '{"object":"error","message":"Prompt contains 9001 tokens and 0 draft tokens, too large for model with 8192 maximum context length","type":"invalid_request_prompt","code":"3051"}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'Text Generation Inference',
    422,
    '{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9001 `inputs` tokens and 20 `max_new_tokens`","error_type":"validation"}',
    { limit: 8192, requested: 9001 },
  ],
  [
    'SGLang',
    400,
    `{"object":"error","message":"The input (9001 tokens) is longer than the model's context length (8192 tokens).","code":400}`,
    { limit: 8192, requested: 9001 },
  ],
  [
    'xAI',
    400,
    `{"error":"This model's maximum prompt length is 8192 but the request contains 9001 tokens."}`,
    { limit: 8192, requested: 9001 },
  ],
  ['Bedrock', 400, '{"message":"Input is too long for requested model."}', {}],
  [
    'GitHub Models',
    413,
    '{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-x model. Max size: 8192 tokens."}}',
    { limit: 8192 },
  ],
];

describe('findRejection', () => {
  it.each(tooLong)('recognizes that a prompt is too long for %s', (_, status, body, numbers) => {
    expect(findRejection(status, body)).toMatchObject({ of: 'context', ...numbers });
    const error = toModelError({ status, text: 'too long', body });
    expect(error).toMatchObject({ retryable: false, rejection: { of: 'context' } });
    expect(error.message).toContain('Shorten it');
  });

  it.each([
    [500, 'image input is not supported - hint: you may need to provide the mmproj', true],
    [400, 'm is not a multimodal model', true],
    [400, 'At most 0 image(s) may be provided in one request.', true],
    [404, 'No endpoints found that support image input', true],
    [422, 'unknown variant `image_url`, expected `text`', true],
    [400, 'messages.1.content.0.image.source.base64: image exceeds 5 MB maximum', false],
    [400, 'Could not process image', false],
  ])('recognizes %i %s', (status, text, isLasting) => {
    expect(findRejection(status, text)).toEqual({ of: 'images', isLasting });
  });

  it.each([
    'registry.ollama.ai/library/gemma:2b does not support tools',
    'No endpoints found that support tool use.',
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
  ])('recognizes %s', (text) => {
    expect(findRejection(400, text)).toEqual({ of: 'tools' });
  });

  it.each([
    'deepseek-reasoner does not support this tool_choice',
    'This model does not support tool_choice',
    "No endpoints found that support the provided 'tool_choice' value.",
    'Tool choice is required, but model did not call a tool',
  ])('recognizes %s', (text) => {
    expect(findRejection(400, text)).toEqual({ of: 'tool-choice' });
  });

  it.each([
    'Thinking may not be enabled when tool_choice forces tool use.',
    'When `thinking` is enabled, a final `assistant` message must start with a thinking block',
  ])('recognizes %s', (text) => {
    expect(findRejection(400, text)).toEqual({ of: 'reasoning' });
  });

  it.each([
    [429, 'Rate limit reached: too many tokens per minute'],
    [401, 'Incorrect API key'],
    [500, 'internal error while loading an image of the container'],
    [400, 'Unknown parameter: foo'],
    [400, 'Tool choice is none, but model called a tool'],
  ])('leaves %i %s to the other errors', (status, text) => {
    expect(findRejection(status, text)).toBeUndefined();
  });
});
