const [QUOTE, BACKSLASH, COMMA, BRACE, BRACKET] = Buffer.from('"\\,{[');

/**
 * Whether a JSON text holds more values than allowed, found without parsing it: a megabyte of empty lists takes
 * a second to read. Texts that are not JSON have some result.
 */
export function hasMoreValues(json: Uint8Array, max: number): boolean {
  let values = 1;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = endOfString(json, at);
    else if (byte === COMMA || byte === BRACE || byte === BRACKET) values += 1;
    if (values > max) return true;
  }
  return false;
}

/** Where the string ends that begins at the quote here. */
function endOfString(json: Uint8Array, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}
