import { type ModelServer, type ModelServerOptions, startModelServer } from './model-server.ts';
import { type EncodedReply, type Said, type ScriptedReply, scriptedUsage, sse } from './script.ts';

/** A server that speaks Google's generateContent streaming. */
export function startGoogleServer(options: ModelServerOptions): Promise<ModelServer> {
  return startModelServer(options, encode);
}

function encode({ say = [], usage = scriptedUsage }: ScriptedReply): EncodedReply {
  const chunks = say.flatMap(toParts).map((part) => ({
    candidates: [{ content: { role: 'model', parts: [part] }, index: 0 }],
    responseId: 'resp_1',
  }));
  const last = {
    candidates: [
      { content: { role: 'model', parts: [{ text: '' }] }, index: 0, finishReason: 'STOP' },
    ],
    usageMetadata: {
      promptTokenCount: usage.input,
      cachedContentTokenCount: usage.cached,
      candidatesTokenCount: usage.output,
      totalTokenCount: usage.input + usage.output,
    },
  };
  return { content: chunks.map((chunk) => sse(chunk)), finish: [sse(last)] };
}

/** Google's calls carry no ids; the first of a step carries the sealed thought. */
function toParts(said: Said, index: number): object[] {
  if ('text' in said) return said.text.map((text) => ({ text }));
  if ('reasoning' in said) return said.reasoning.map((text) => ({ text, thought: true }));
  const { name, input } = said.toolCall;
  return [
    { functionCall: { name, args: JSON.parse(input) }, thoughtSignature: `thought_${index}` },
  ];
}
