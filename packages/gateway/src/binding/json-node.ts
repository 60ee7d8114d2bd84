import { scanJson } from '@sibyl/server-kit';
import { BindError } from './bind-error.js';

/**
 * A JSON value with its source text, since that is the value of numbers with all their digits and of
 * raw JSON with its exact bytes.
 */
export interface JsonNode {
  readonly text: string;
  /** Of an object, in order. */
  readonly members?: readonly (readonly [string, JsonNode])[];
  /** Of a list. */
  readonly items?: readonly JsonNode[];
}

const MAX_DEPTH = 64;
/** More than any transaction has. */
const MAX_VALUES = 10_000;
const SPACE = /\s*/y;
const STRING_OR_WORD = /"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,\]}]+/y;
const utf8 = new TextDecoder('utf-8', { fatal: true });
/** Go replaces what is not UTF-8, and does not accept a byte order mark. */
const goUtf8 = new TextDecoder('utf-8', { ignoreBOM: true });

/** With `node`, only the first value is read and the rest is ignored, as on a node. Undefined if there is none. */
export function readJson(body: Uint8Array, compat?: 'node'): JsonNode | undefined {
  const value = compat ? firstValue(body) : body;
  if (value.length === 0) return undefined;
  const { excess } = scanJson(value, { values: MAX_VALUES, depth: MAX_DEPTH });
  if (excess) throw new BindError('', `The body has ${excess}`);
  try {
    const text = (compat ? goUtf8 : utf8).decode(value);
    // The reader below requires valid JSON.
    JSON.parse(text);
    return new JsonReader(text).read();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new BindError('', `The body is not valid JSON: ${reason}`);
  }
}

/** The value of a JSON string; undefined for other JSON. */
export function readString({ text }: JsonNode): string | undefined {
  return text.startsWith('"') ? (JSON.parse(text) as string) : undefined;
}

class JsonReader {
  private readonly text: string;
  private at = 0;

  constructor(text: string) {
    this.text = text;
  }

  read(): JsonNode {
    this.match(SPACE);
    const start = this.at;
    const first = this.text[start];
    if (first === '{') {
      const members = this.readList('}', () => this.readMember());
      return { text: this.text.slice(start, this.at), members };
    }
    if (first === '[') {
      const items = this.readList(']', () => this.read());
      return { text: this.text.slice(start, this.at), items };
    }
    return { text: this.match(STRING_OR_WORD) };
  }

  private readMember(): readonly [string, JsonNode] {
    const name = JSON.parse(this.match(STRING_OR_WORD)) as string;
    this.match(SPACE);
    this.at += 1;
    return [name, this.read()];
  }

  /** Reads the items between two brackets. */
  private readList<T>(closing: string, readItem: () => T): T[] {
    const items: T[] = [];
    this.at += 1;
    this.match(SPACE);
    while (this.text[this.at] !== closing) {
      items.push(readItem());
      this.match(SPACE);
      if (this.text[this.at] === ',') this.at += 1;
      this.match(SPACE);
    }
    this.at += 1;
    return items;
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }
}

const [QUOTE, BACKSLASH, BRACE, BRACE_END] = Buffer.from('"\\{}');

const SPACES: ReadonlySet<number | undefined> = new Set(Buffer.from(' \t\r\n'));

/** The bytes of the first value; up to the end if it is not complete. */
function firstValue(json: Uint8Array): Uint8Array {
  const start = json.findIndex((byte) => !SPACES.has(byte));
  if (start < 0) return NOTHING;
  const rest = json.subarray(start);
  if (rest[0] === BRACE) return rest.subarray(0, endOfObject(rest));
  const end = rest.findIndex((byte) => SPACES.has(byte));
  return end < 0 ? rest : rest.subarray(0, end);
}

function endOfObject(json: Uint8Array): number {
  let depth = 0;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = endOfString(json, at);
    else if (byte === BRACE) depth += 1;
    else if (byte === BRACE_END) depth -= 1;
    if (depth === 0) return at + 1;
  }
  return json.length;
}

const NOTHING = new Uint8Array();

/** Where the string ends that begins at the quote here. */
function endOfString(json: Uint8Array, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}
