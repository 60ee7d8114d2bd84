import { type ModelServer, type ModelServerOptions, startModelServer } from './model-server.ts';
import { type EncodedReply, type Said, type ScriptedReply, scriptedUsage, sse } from './script.ts';

/** A server that speaks OpenAI's chat completions. */
export function startChatCompletionsServer(options: ModelServerOptions): Promise<ModelServer> {
  return startModelServer(options, encode);
}

const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'test' };

function encode({ say = [], usage = scriptedUsage }: ScriptedReply): EncodedReply {
  let calls = 0;
  const deltas = say.flatMap((said) => toDeltas(said, 'toolCall' in said ? calls++ : 0));
  const finish_reason = calls > 0 ? 'tool_calls' : 'stop';
  const counts = {
    prompt_tokens: usage.input,
    completion_tokens: usage.output,
    total_tokens: usage.input + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cached },
  };
  return {
    content: [{ role: 'assistant', content: '' }, ...deltas].map((delta) =>
      sse({ ...head, choices: [{ index: 0, delta, finish_reason: null }] }),
    ),
    finish: [
      sse({ ...head, choices: [{ index: 0, delta: {}, finish_reason }] }),
      sse({ ...head, choices: [], usage: counts }),
      sse('[DONE]'),
    ],
  };
}

function toDeltas(said: Said, index: number): object[] {
  if ('text' in said) return said.text.map((content) => ({ content }));
  if ('reasoning' in said) return said.reasoning.map((text) => ({ reasoning_content: text }));
  const { id, name, input } = said.toolCall;
  const half = Math.ceil(input.length / 2);
  const pieces = [
    { index, id, type: 'function', function: { name, arguments: '' } },
    { index, function: { arguments: input.slice(0, half) } },
    { index, function: { arguments: input.slice(half) } },
  ];
  return pieces.map((piece) => ({ tool_calls: [piece] }));
}
