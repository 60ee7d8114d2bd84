import type { InterruptRequest, ToolContext } from '@sibyl/plugin-kit';
import { isStandardSchema } from '@sibyl/plugin-kit/host';
import { describeIssues, type JsonObject, measureJson } from '@sibyl/protocol';
import type { AgentCall } from '../../agent/agent.js';
import { readAnswerSchema } from '../../agent/tool-schema.js';

/** Limits of a question: it is stored until it is answered. */
const LIMITS = { depth: 100, values: 10_000, characters: 128 * 1024 };
const KINDS: ReadonlySet<unknown> = new Set(['tool_call', 'confirmation', 'input_required']);

/** Creates the `interrupt` of a tool's context. */
export function createInterrupt(call: AgentCall): ToolContext['interrupt'] {
  return async (request) => {
    const value = call.interrupt(readRequest(request));
    const { schema } = request;
    if (!isStandardSchema(schema)) return value as never;
    const checked = await schema['~standard'].validate(value);
    if (!checked.issues) return checked.value as never;
    const issues = describeIssues(checked.issues, 'answer').join('; ');
    throw new Error(`The answer does not match the schema of the question: ${issues}`);
  };
}

/** Converts a question to JSON, as it is stored; throws an error for the author of the tool. */
function readRequest(request: InterruptRequest): InterruptRequest<JsonObject> {
  const { kind, data, expiresInSeconds } = request;
  if (!KINDS.has(kind))
    throw new TypeError(`The kind of a question must be one of ${[...KINDS].join(', ')}`);
  if (expiresInSeconds !== undefined && !(expiresInSeconds > 0))
    throw new TypeError('expiresInSeconds must be a positive number');
  const { excess } = measureJson(data, LIMITS);
  if (excess) throw new TypeError(`The data of a question ${excess}`);
  const schema = readSchema(request);
  return JSON.parse(JSON.stringify({ kind, schema, data, expiresInSeconds }));
}

function readSchema({ schema }: InterruptRequest): JsonObject {
  try {
    return readAnswerSchema(schema);
  } catch (error) {
    throw new TypeError(`The schema of a question cannot be used: ${(error as Error).message}`);
  }
}
