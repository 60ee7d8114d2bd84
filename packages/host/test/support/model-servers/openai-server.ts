import { type ModelServer, type ModelServerOptions, startModelServer } from './model-server.ts';
import { type EncodedReply, type Said, type ScriptedReply, scriptedUsage, sse } from './script.ts';

/** A server that speaks OpenAI's Responses API. */
export function startOpenAiServer(options: ModelServerOptions): Promise<ModelServer> {
  return startModelServer(options, encode);
}

const response = { id: 'resp_1', object: 'response', created_at: 1_900_000_000, model: 'gpt-test' };

function encode({ say = [], usage = scriptedUsage }: ScriptedReply): EncodedReply {
  const start = [
    { type: 'response.created', response: { ...response, status: 'in_progress' } },
    { type: 'response.in_progress', response: { ...response, status: 'in_progress' } },
  ];
  const completed = {
    type: 'response.completed',
    response: {
      ...response,
      status: 'completed',
      usage: {
        input_tokens: usage.input,
        input_tokens_details: { cached_tokens: usage.cached },
        output_tokens: usage.output,
        output_tokens_details: { reasoning_tokens: 5 },
        total_tokens: usage.input + usage.output,
      },
    },
  };
  const events = [...start, ...say.flatMap(toEvents)];
  return { content: events.map(encodeEvent), finish: [encodeEvent(completed)] };
}

function encodeEvent(event: { type: string }): string {
  return sse(event, event.type);
}

function toEvents(said: Said, output_index: number): { type: string }[] {
  if ('text' in said) return messageEvents(said.text, output_index);
  if ('reasoning' in said) return reasoningEvents(said.reasoning, output_index);
  return callEvents(said.toolCall, output_index);
}

function itemEvents(output_index: number, begun: object, done: object, between: object[]) {
  return [
    { type: 'response.output_item.added', output_index, item: begun },
    ...between.map((event) => ({ output_index, ...event }) as unknown as { type: string }),
    { type: 'response.output_item.done', output_index, item: { ...begun, ...done } },
  ];
}

function messageEvents(pieces: readonly string[], index: number) {
  const id = `msg_${index}`;
  const item = { id, type: 'message', role: 'assistant', status: 'in_progress', content: [] };
  const place = { item_id: id, content_index: 0 };
  const text = pieces.join('');
  return itemEvents(index, item, { status: 'completed' }, [
    { type: 'response.content_part.added', ...place, part: { type: 'output_text', text: '' } },
    ...pieces.map((delta) => ({ type: 'response.output_text.delta', ...place, delta })),
    { type: 'response.output_text.done', ...place, text },
  ]);
}

function reasoningEvents(pieces: readonly string[], index: number) {
  const id = `rs_${index}`;
  const place = { item_id: id, summary_index: 0 };
  const item = { id, type: 'reasoning', summary: [], encrypted_content: null };
  const done = {
    summary: [{ type: 'summary_text', text: pieces.join('') }],
    encrypted_content: `sealed_${index}`,
  };
  return itemEvents(index, item, done, [
    {
      type: 'response.reasoning_summary_part.added',
      ...place,
      part: { type: 'summary_text', text: '' },
    },
    ...pieces.map((delta) => ({ type: 'response.reasoning_summary_text.delta', ...place, delta })),
    { type: 'response.reasoning_summary_part.done', ...place },
  ]);
}

type ScriptedCall = Extract<Said, { toolCall: unknown }>['toolCall'];

function callEvents({ id, name, input }: ScriptedCall, index: number) {
  const item_id = `fc_${index}`;
  const item = { id: item_id, type: 'function_call', call_id: id, name, arguments: '' };
  const half = Math.ceil(input.length / 2);
  const deltas = [input.slice(0, half), input.slice(half)];
  return itemEvents(index, item, { arguments: input, status: 'completed' }, [
    ...deltas.map((delta) => ({ type: 'response.function_call_arguments.delta', item_id, delta })),
    { type: 'response.function_call_arguments.done', item_id, arguments: input },
  ]);
}
