import type { ChatMessage } from './floor-rows.ts';
import type { ModelText } from './model-text.ts';

export interface FloorCall {
  readonly id: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

const TOOL = {
  type: 'function',
  function: {
    name: 'clock',
    description: 'Tells the time in a place',
    parameters: {
      type: 'object',
      properties: { place: { type: 'string' } },
      required: ['place'],
    },
  },
};

export interface ModelQuestion {
  readonly modelUrl: string;
  readonly client: ModelText;
  readonly messages: readonly ChatMessage[];
  readonly hasTool: boolean;
  readonly onText: (text: string) => void;
}

/** Asks the model, passes text on as it comes, and returns the tool call if there is one. */
export async function askModel(question: ModelQuestion): Promise<FloorCall | undefined> {
  const { modelUrl, client, messages, hasTool, onText } = question;
  const body = JSON.stringify({
    model: 'stub',
    messages: [{ role: 'system', content: 'You are helpful.' }, ...messages],
    ...(hasTool && { tools: [TOOL] }),
    stream: true,
  });
  let call: FloorCall | undefined;
  let rest = '';
  for await (const piece of client(`${modelUrl}/chat/completions`, body)) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    let text = '';
    for (const line of lines) {
      const delta = deltaIn(line);
      text += delta?.content ?? '';
      call ??= delta?.tool_calls?.[0];
    }
    if (text) onText(text);
  }
  return call;
}

interface Delta {
  readonly content?: string;
  readonly tool_calls?: readonly FloorCall[];
}

function deltaIn(line: string): Delta | undefined {
  if (!line.startsWith('data: {')) return undefined;
  return JSON.parse(line.slice(6)).choices[0]?.delta;
}
