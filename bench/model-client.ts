// The processor time of a turn in our client of OpenAI's protocol and in the AI SDK's, in alternating slices of one process:
//   npm run bench:model-client -- [slices]
// "Behind our interface" converts calls and parts, as the host does for other providers; "alone" only reads the stream.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import type { Model, ModelCall, ModelMessage } from '../packages/host/src/models/model.ts';
import { formatTable, median, quantile, readLoad } from './support/figures.ts';
import { startServer } from './support/server-process.ts';

const built = new URL('../packages/host/dist/models/', import.meta.url).href;
const { createAiSdkModel }: typeof import('../packages/host/src/models/ai-sdk-model.ts') =
  await import(`${built}ai-sdk-model.js`);
const { ModelFacts }: typeof import('../packages/host/src/models/model-facts.ts') = await import(
  `${built}model-facts.js`
);
const {
  createOpenAiCompatibleModel,
}: typeof import('../packages/host/src/models/openai-compatible/openai-compatible-model.ts') =
  await import(`${built}openai-compatible/openai-compatible-model.js`);

const SLICES = Number(process.argv[2] ?? 7);
const CONCURRENCY = 16;
const TOKENS = 50;
const TOOLS = 8;
const HISTORY = 10;
const TOOL_CALL = { name: 'tool_0', input: '{"text":"Nairobi"}' };
/** Tokens that arrive one by one, as those of most models do, cost more than tokens that arrive together. */
const PACES = [
  { gapMs: 0, pace: 'all at once', turns: 480 },
  { gapMs: 5, pace: 'every 5 ms', turns: 96 },
];

/** The same call for all: a history, a question and tools. */
const system = 'You are a careful assistant of farmers. '.repeat(50);
const schema = { type: 'object' as const, properties: { text: { type: 'string' as const } } };
const tools = Array.from({ length: TOOLS }, (_, i) => ({
  name: `tool_${i}`,
  description: 'Finds what was stored about a place, newest first. '.repeat(4),
  inputSchema: { ...schema },
}));
const history = Array.from({ length: HISTORY }, (_, i): ModelMessage => {
  const text = 'The harvest of this year was larger than that of the last. '.repeat(3);
  return i % 2 === 0 ? { role: 'user', content: text } : { role: 'assistant', text };
});
const question: ModelMessage = { role: 'user', content: 'How large was the harvest?' };

type SdkModel = ReturnType<ReturnType<typeof createOpenAICompatible>['chatModel']>;
type SdkPrompt = Parameters<SdkModel['doStream']>[0]['prompt'];

/** Runs one turn; returns the number of characters of its answer. */
type RunTurn = () => Promise<number>;

async function main(): Promise<void> {
  console.log(`Load of the machine before: ${readLoad()}`);
  const rows: string[][] = [];
  for (const { gapMs, pace, turns } of PACES)
    for (const toolCall of [undefined, TOOL_CALL]) {
      const server = await startServer(new URL('./servers/model.ts', import.meta.url), {
        args: [JSON.stringify({ tokens: TOKENS, gapMs, toolCall })],
      });
      try {
        const measured = await measureInTurn(createContenders(server.url), turns);
        const cells = measured.map((ms) => `${median(ms).toFixed(2)} (${formatQuartiles(ms)}) ms`);
        rows.push([`${TOKENS} tokens ${pace}${toolCall ? ', with a tool call' : ''}`, ...cells]);
      } finally {
        await server.stop();
      }
    }
  console.log(`Load of the machine after: ${readLoad()}`);
  const head = ['processor time of a turn', 'ours', 'AI SDK behind our interface', 'AI SDK alone'];
  console.log(formatTable([head, ...rows]));
}

const formatQuartiles = (ms: readonly number[]): string =>
  [0.25, 0.75].map((share) => quantile(ms, share).toFixed(2)).join('–');

function createContenders(url: string): readonly RunTurn[] {
  const info = { id: 'openai-compatible/stub', label: 'stub', provider: 'openai-compatible' };
  const access = { baseUrl: url, apiKey: 'key' };
  const ours = createOpenAiCompatibleModel({ ...info, name: 'stub', access });
  const options = { name: 'stub', baseURL: url, apiKey: 'key', includeUsage: true };
  const sdk = createOpenAICompatible(options).chatModel('stub');
  const facts = new ModelFacts();
  const adapted = createAiSdkModel({ ...info, facts, load: async () => sdk });
  return [() => runTurn(ours), () => runTurn(adapted), () => runBareTurn(sdk)];
}

async function runTurn(model: Model): Promise<number> {
  const messages = [...history, question];
  for (;;) {
    const { signal } = new AbortController();
    const call: ModelCall = { system, messages, tools, signal };
    let characters = 0;
    for await (const part of model.stream(call)) {
      if (part.type === 'text') characters += part.text.length;
      if (part.type !== 'tool-call') continue;
      const { id, name } = part.call;
      messages.push({ role: 'assistant', text: '', toolCalls: [part.call] });
      messages.push({ role: 'tool', results: [{ id, name, output: '42 tons', isError: false }] });
    }
    if (characters > 0) return characters;
  }
}

async function runBareTurn(model: SdkModel): Promise<number> {
  const prompt = [...barePrompt];
  for (;;) {
    const { signal: abortSignal } = new AbortController();
    const { stream } = await model.doStream({ prompt, tools: bareTools, abortSignal });
    let characters = 0;
    for await (const part of stream) {
      if (part.type === 'text-delta') characters += part.delta.length;
      if (part.type !== 'tool-call') continue;
      const { toolCallId, toolName } = part;
      const output = { type: 'text' as const, value: '42 tons' };
      prompt.push({ role: 'assistant', content: [{ ...part, input: JSON.parse(part.input) }] });
      const content = [{ type: 'tool-result' as const, toolCallId, toolName, output }];
      prompt.push({ role: 'tool', content });
    }
    if (characters > 0) return characters;
  }
}

const bareTools = tools.map((tool) => ({ type: 'function' as const, ...tool }));
const barePrompt: SdkPrompt = [
  { role: 'system', content: system },
  ...[...history, question].flatMap((message): SdkPrompt => {
    if (message.role === 'tool') return [];
    const text = message.role === 'user' ? String(message.content) : message.text;
    return [{ role: message.role, content: [{ type: 'text', text }] }];
  }),
];

/** Milliseconds of processor time per turn, by contender and slice; the first slices warm up. */
async function measureInTurn(
  contenders: readonly RunTurn[],
  turns: number,
): Promise<readonly (readonly number[])[]> {
  const measured = contenders.map((): number[] => []);
  for (let slice = -1; slice < SLICES; slice++)
    for (const [i, run] of contenders.entries()) {
      const ms = await measureSlice(run, turns);
      if (slice >= 0) measured[i]?.push(ms);
    }
  return measured;
}

async function measureSlice(run: RunTurn, turns: number): Promise<number> {
  let left = turns;
  const work = async () => {
    while (left-- > 0)
      if ((await run()) !== TOKENS * 'word '.length) throw new Error('An answer is incomplete');
  };
  const before = process.cpuUsage();
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / turns;
}

await main();
process.exit();
