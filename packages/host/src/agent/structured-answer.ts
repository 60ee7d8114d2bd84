import { type JsonObject, OracleError, type Result } from '@sibyl/protocol';
import type { ModelMessage } from '../models/model.js';
import type { AgentPart, AgentRequest } from './agent.js';
import { runAgent } from './run-agent.js';
import { type ResponseSchema, readResponseSchema } from './tool-schema.js';

/** Answers one message as `runAgent` does; with a schema, the text is JSON that fits it, or the turn fails. */
export function answerMessage(request: AgentRequest): AsyncGenerator<AgentPart> {
  const { responseSchema } = request;
  return responseSchema ? runStructured(request, responseSchema) : runAgent(request);
}

async function* runStructured(request: AgentRequest, given: JsonObject): AsyncGenerator<AgentPart> {
  const read = readResponseSchema(given);
  if (!read.ok)
    throw new OracleError('validation_failed', { message: [`responseSchema: ${read.error}`] });
  const schema = read.ok;
  const asked = { ...request, responseSchema: schema.json, messages: instruct(request, schema) };
  const text = yield* collectAnswer(runAgent(asked));
  const answer = checkAnswer(text, schema);
  if (!answer.error) {
    yield { type: 'text', text: JSON.stringify(answer.ok) };
    return;
  }
  const repaired = yield* repair(asked, text, answer.error);
  const checked = checkAnswer(repaired, schema);
  if (checked.error)
    throw new OracleError('response_schema_mismatch', {
      message: `The model's answer does not fit the schema of the message: ${checked.error.join('; ')}`,
    });
  yield { type: 'text', text: JSON.stringify(checked.ok) };
}

/** Asks for an answer that fits, once, without tools. */
function repair(
  request: AgentRequest,
  text: string,
  errors: readonly string[],
): AsyncGenerator<AgentPart, string> {
  const content = `(Your answer does not fit the schema: ${errors.join('; ')}. Answer again, with nothing but JSON that fits.)`;
  const messages: ModelMessage[] = [
    ...request.messages,
    { role: 'assistant', text: text || '(No text.)' },
    { role: 'user', content },
  ];
  return collectAnswer(
    runAgent({ ...request, messages, tools: () => [], journal: undefined, path: undefined }),
  );
}

/** Asks the model for such an answer, in the note of the message: then the beginning of the prompt stays the same. */
function instruct({ messages }: AgentRequest, { json }: ResponseSchema): readonly ModelMessage[] {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  const asked = messages[at];
  if (asked?.role !== 'user') return messages;
  const rule = `[Answer with nothing but JSON that fits this JSON Schema: ${JSON.stringify(json)}]`;
  const note = [asked.note, rule].filter(Boolean).join('\n');
  return messages.with(at, { ...asked, note });
}

/** Yields everything but the text, and returns the text after the last tool call. */
async function* collectAnswer(parts: AsyncIterable<AgentPart>): AsyncGenerator<AgentPart, string> {
  let text = '';
  for await (const part of parts) {
    if (part.type === 'text') {
      text += part.text;
      continue;
    }
    if (part.type === 'tool-start') text = '';
    yield part;
  }
  return text.trim();
}

/** Only one way to match each line end: answers may be long. */
const FENCED = /^```(?:json)?[^\S\n]*\n([\s\S]*?)\n?```$/i;

function checkAnswer(text: string, { check }: ResponseSchema): Result<unknown, readonly string[]> {
  try {
    return check(JSON.parse(FENCED.exec(text)?.[1] ?? text));
  } catch {
    return { error: ['it is not JSON'] };
  }
}
