/** Longest result one call may give, in characters. */
const RESULT_LIMIT = 100_000;
const FAULT_LIMIT = 500;

/** The JSON text of what a tool returned, whatever that was, bounded in length. */
export function toResultText(value: unknown): string {
  return shortenResult(stringify(value) ?? 'null', RESULT_LIMIT);
}

/** The JSON text that tells a model why a call failed: one short line, no stack. */
export function toFaultText(fault: unknown): string {
  const line = messageOf(fault).replace(/\s+/g, ' ').trim();
  const error = line.length > FAULT_LIMIT ? `${line.slice(0, FAULT_LIMIT)}…` : line;
  return JSON.stringify({ error: error.toWellFormed() || 'The tool failed.' });
}

/** Anything may be thrown, also what throws again when it is looked at. */
function messageOf(fault: unknown): string {
  try {
    const message =
      typeof fault === 'object' && fault && 'message' in fault ? fault.message : fault;
    return typeof message === 'string' ? message : '';
  } catch {
    return '';
  }
}

/** Cuts the JSON text of a result to `limit` characters; what comes out is JSON again and says so. */
export function shortenResult(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const note = `Only the beginning is shown: the whole result has ${text.length} characters.`;
  const write = (length: number) =>
    JSON.stringify({ note, beginning: text.slice(0, length).toWellFormed() });
  let length = limit - write(0).length;
  let shortened = write(Math.max(0, length));
  // Quotes and line breaks grow when they are written as JSON once more.
  while (shortened.length > limit && length > 0) {
    length = Math.floor((length * limit) / shortened.length) - 1;
    shortened = write(Math.max(0, length));
  }
  return shortened;
}

function stringify(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, writeBigInt);
  } catch (fault) {
    // Looking for cycles costs a walk up for every value, so it waits until one is found.
    if (fault instanceof TypeError) return JSON.stringify(value, cycleCutter());
    throw fault;
  }
}

function writeBigInt(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}

function cycleCutter() {
  const ancestors: unknown[] = [];
  return function cut(this: unknown, key: string, value: unknown): unknown {
    while (ancestors.length > 0 && ancestors.at(-1) !== this) ancestors.pop();
    if (ancestors.includes(value)) return '[circular]';
    if (typeof value === 'object' && value !== null) ancestors.push(value);
    return writeBigInt(key, value);
  };
}
