import { JsonObject } from '@sibyl/protocol';
import type { ModelToolCall } from '../model/model.js';

const SHOWN_INPUT = 200;
const NAME_LIMIT = 64;

/** A call as the model wrote it, read; with a `fault` it is answered, not run. */
export interface WantedCall {
  readonly id: string;
  readonly name: string;
  readonly args: JsonObject;
  readonly fault?: string | undefined;
}

/** Reads what the model wrote; what is no JSON object becomes `{}` and a fault. */
export function readCall({ id, name, input }: ModelToolCall): WantedCall {
  const call = { id, name: nameFit(name), args: {} };
  // Many models send nothing at all to a tool that takes nothing.
  if (input.trim() === '') return call;
  try {
    const read = JsonObject.safeParse(JSON.parse(input));
    if (read.success) return { ...call, args: read.data };
    return { ...call, fault: `The input must be a JSON object: ${read.error.issues[0]?.message}` };
  } catch {
    return { ...call, fault: `The input is not valid JSON: ${input.slice(0, SHOWN_INPUT)}` };
  }
}

/** The model sees its own calls again, and providers refuse names that no tool could have. */
function nameFit(name: string): string {
  return name.replace(/[^\w-]/g, '_').slice(0, NAME_LIMIT) || 'unknown';
}
