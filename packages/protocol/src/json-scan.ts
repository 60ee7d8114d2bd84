export interface JsonScanLimits {
  /** Objects, arrays and plain values, at all levels. */
  readonly values: number;
  /** Names in objects, at all levels: each takes as long to parse as several plain values. */
  readonly members?: number;
  /** How many more names there may be below the upper four levels, such as in the schemas of tools. */
  readonly deepMembers?: number;
  /** Levels of nesting. */
  readonly depth?: number;
}

export interface JsonScan {
  readonly values: number;
  readonly members: number;
  /** Which limit the text exceeds; the figures are then those of the part that was read. */
  readonly excess: string | undefined;
}

const UPPER_LEVELS = 4;
/** Deeper than any schema of a tool. */
const MAX_DEPTH = 128;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const BRACKET_END = 0x5d;
const BRACE = 0x7b;
const BRACE_END = 0x7d;
/** Tabs and line breaks are lower; no other character of JSON is. */
const SPACE = 0x20;

/**
 * Counts what a JSON text holds, without parsing it: 70,000 different names in 750 kB take half a second to parse, and a
 * millisecond to count. A text that is not JSON holds no more than is counted up to where the parser finds the error.
 */
export function scanJson(json: Uint8Array, limits: JsonScanLimits): JsonScan {
  const counts = { values: 1, members: 0, upperMembers: 0, depth: 0 };
  for (let at = 0; at < json.length; at += 1) {
    switch (json[at]) {
      case QUOTE:
        at = findStringEnd(json, at);
        continue;
      case COMMA:
        counts.values += 1;
        break;
      case COLON:
        counts.members += 1;
        if (counts.depth <= UPPER_LEVELS) counts.upperMembers += 1;
        break;
      case BRACE:
      case BRACKET:
        counts.depth += 1;
        // Each further value in it follows a comma.
        if (hasContent(json, at)) counts.values += 1;
        break;
      case BRACE_END:
      case BRACKET_END:
        counts.depth -= 1;
        continue;
      default:
        continue;
    }
    const excess = findExcess(counts, limits);
    if (excess) return { values: counts.values, members: counts.members, excess };
  }
  return { values: counts.values, members: counts.members, excess: undefined };
}

type Counts = Readonly<Record<'values' | 'members' | 'upperMembers' | 'depth', number>>;

function findExcess(counts: Counts, limits: JsonScanLimits): string | undefined {
  const { values, members = values, deepMembers = 0, depth = MAX_DEPTH } = limits;
  if (counts.values > values) return `more than ${values} values`;
  if (counts.upperMembers > members || counts.members > members + deepMembers)
    return `more than ${members} members of objects`;
  return counts.depth > depth ? `more than ${depth} levels` : undefined;
}

/** Where the string ends that begins at the quote here. Files in base64 are searched in large steps. */
function findStringEnd(json: Uint8Array, start: number): number {
  let quote = start;
  for (let at = start + 1; at < json.length; ) {
    const end = Math.min(at + SMALL_STEP, json.length);
    at = skipText(json, at, end);
    if (at < end) return at;
    if (quote < at) quote = findByte(json, QUOTE, at);
    const backslash = findByte(json.subarray(0, quote), BACKSLASH, at);
    if (backslash >= quote) return quote;
    at = backslash;
  }
  return json.length;
}

function skipText(json: Uint8Array, start: number, end: number): number {
  let at = start;
  while (at < end && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}

function findByte(json: Uint8Array, byte: number, start: number): number {
  const at = json.indexOf(byte, start);
  return at < 0 ? json.length : at;
}

/** Bytes that are compared one by one before the rest of a string is searched natively: each search has a fixed cost. */
const SMALL_STEP = 128;

/** Whether anything but spaces is between the bracket here and the next one. */
function hasContent(json: Uint8Array, start: number): boolean {
  let at = start + 1;
  while ((json[at] ?? QUOTE) <= SPACE) at += 1;
  return json[at] !== BRACE_END && json[at] !== BRACKET_END;
}
