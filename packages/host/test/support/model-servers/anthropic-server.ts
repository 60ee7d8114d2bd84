import { type ModelServer, type ModelServerOptions, startModelServer } from './model-server.ts';
import { type EncodedReply, type Said, type ScriptedReply, scriptedUsage, sse } from './script.ts';

/** A server that speaks Anthropic's Messages API. */
export function startAnthropicServer(options: ModelServerOptions): Promise<ModelServer> {
  return startModelServer(options, encode);
}

function encode({ say = [], usage = scriptedUsage }: ScriptedReply): EncodedReply {
  const counts = {
    // Anthropic counts what came from the cache apart.
    input_tokens: usage.input - usage.cached,
    cache_read_input_tokens: usage.cached,
    cache_creation_input_tokens: 0,
  };
  const start = {
    type: 'message_start',
    message: {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude-test',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { ...counts, output_tokens: 1 },
    },
  };
  const stop_reason = say.some((said) => 'toolCall' in said) ? 'tool_use' : 'end_turn';
  const finish = [
    {
      type: 'message_delta',
      delta: { stop_reason, stop_sequence: null },
      usage: { output_tokens: usage.output },
    },
    { type: 'message_stop' },
  ];
  const events = [start, { type: 'ping' }, ...say.flatMap(blockEvents)];
  return { content: events.map(encodeEvent), finish: finish.map(encodeEvent) };
}

function encodeEvent(event: { type: string }): string {
  return sse(event, event.type);
}

function blockEvents(said: Said, index: number): { type: string }[] {
  const { block, deltas } = toBlock(said, index);
  return [
    { type: 'content_block_start', index, content_block: block } as { type: string },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index } as { type: string },
  ];
}

function toBlock(said: Said, index: number): { block: object; deltas: object[] } {
  if ('text' in said)
    return {
      block: { type: 'text', text: '' },
      deltas: said.text.map((text) => ({ type: 'text_delta', text })),
    };
  if ('reasoning' in said)
    return {
      block: { type: 'thinking', thinking: '', signature: '' },
      deltas: [
        ...said.reasoning.map((thinking) => ({ type: 'thinking_delta', thinking })),
        { type: 'signature_delta', signature: `signed_${index}` },
      ],
    };
  const { id, name, input } = said.toolCall;
  const half = Math.ceil(input.length / 2);
  const pieces = ['', input.slice(0, half), input.slice(half)];
  return {
    block: { type: 'tool_use', id, name, input: {} },
    deltas: pieces.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
  };
}
