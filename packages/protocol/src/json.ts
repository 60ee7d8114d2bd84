import { z } from 'zod';

const MAX_DEPTH = 32;
const MAX_KEY_LENGTH = 256;
/** More than any body holds; ends the walk through a value that holds itself many times over. */
const MAX_VALUES = 1_000_000;

export interface JsonLimits {
  /** Levels of nesting. */
  readonly depth?: number;
  /** Objects, arrays and plain values, at all levels. */
  readonly values?: number;
  /** Of its JSON text, without whitespace. */
  readonly characters?: number;
}

export interface JsonSize {
  readonly values: number;
  readonly characters: number;
  /** Which limit it exceeds; the figures are then those of the part that was measured. */
  readonly excess: string | undefined;
}

/**
 * Measures a JSON value. The walk ends at the first limit it meets and does not recurse, so that it costs no more than the
 * limits allow. Characters are counted from below: escapes and separators count as nothing.
 */
export function measureJson(value: unknown, limits: JsonLimits): JsonSize {
  return new JsonWalk(limits).measure(value);
}

class JsonWalk {
  private readonly limits: Required<JsonLimits>;
  private readonly open: { readonly container: object; readonly depth: number }[] = [];
  private values = 0;
  private characters = 0;

  constructor({ depth = MAX_DEPTH, values = MAX_VALUES, characters }: JsonLimits) {
    this.limits = { depth, values, characters: characters ?? Number.POSITIVE_INFINITY };
  }

  measure(root: unknown): JsonSize {
    const excess = this.findExcess(root);
    return { values: this.values, characters: this.characters, excess };
  }

  private findExcess(root: unknown): string | undefined {
    let excess = this.count(root, -1);
    for (let level = this.open.pop(); level && !excess; level = this.open.pop())
      excess = this.enter(level.container, level.depth);
    return excess;
  }

  private enter(container: object, depth: number): string | undefined {
    if (Array.isArray(container)) {
      for (const value of container) {
        const excess = this.count(value, depth);
        if (excess) return excess;
      }
      return undefined;
    }
    // Unlike Object.entries it makes no copy of what may be a huge object.
    for (const name in container) {
      this.characters += name.length + 3;
      const excess = this.count(Reflect.get(container, name), depth);
      if (excess) return excess;
    }
    return undefined;
  }

  private count(value: unknown, depth: number): string | undefined {
    const { depth: levels, values, characters } = this.limits;
    if (depth >= levels) return `may nest at most ${levels} levels`;
    this.values += 1;
    this.characters += typeof value === 'string' ? value.length + 2 : 1;
    if (this.values > values) return `may hold at most ${values} values`;
    if (this.characters > characters) return `may hold at most ${characters} characters of JSON`;
    if (isContainer(value)) this.open.push({ container: value, depth: depth + 1 });
    return undefined;
  }
}

const isContainer = (value: unknown): value is object =>
  typeof value === 'object' && value !== null;

const listCodes = (text: string) => [...text].map((character) => character.charCodeAt(0));
const [LF, CR, QUOTE, COMMA, COLON, ESCAPE] = listCodes('\n\r",:\\');
const [OPEN_ARRAY, OPEN_OBJECT, CLOSE_ARRAY, CLOSE_OBJECT] = listCodes('[{]}');
/** To handle a message, even an empty one, takes as long as to parse this many values. */
const VALUES_PER_MESSAGE = 20;

export interface JsonTextLimits {
  /** Values at once; a message counts as 20, and a member of an object as two. */
  readonly max: number;
  readonly perSecond: number;
}

/**
 * Counts the values in JSON text or server-sent events while they arrive: many small ones take much longer to parse than their
 * bytes suggest. Messages are the objects of a list, and events with any data. A line without a value, such as a comment, counts
 * as one: to split a text into many lines takes long, too.
 */
export class JsonTextLimit {
  private values = 0;
  private updatedAt = performance.now();
  private depth = 0;
  private previous: number | undefined;
  private isInString = false;
  /** Whether the current line has a value that was counted. */
  private hasValue = false;

  constructor(private readonly limits: JsonTextLimits) {}

  /** Throws if there are too many. */
  add(chunk: Uint8Array): void {
    const { max, perSecond } = this.limits;
    const now = performance.now();
    this.values = Math.max(0, this.values - ((now - this.updatedAt) / 1000) * perSecond);
    this.updatedAt = now;
    for (const byte of chunk) this.read(byte);
    if (this.values > max) throw new RangeError(`It has more than ${max} JSON values at once`);
  }

  private read(byte: number): void {
    const { previous, isInString } = this;
    const isEscaped = isInString && previous === ESCAPE;
    this.previous = isEscaped ? undefined : byte;
    if (byte === LF || byte === CR) this.endLine(byte, previous);
    else if (byte === QUOTE) this.isInString = isInString === isEscaped;
    else if (!isInString) this.count(byte);
  }

  private count(byte: number): void {
    switch (byte) {
      case COLON:
        // To parse a name takes longer than to parse a plain value.
        this.values += 1;
        break;
      case COMMA:
        this.values += 1;
        this.hasValue = true;
        break;
      case OPEN_ARRAY:
      case OPEN_OBJECT:
        this.values += byte === OPEN_OBJECT && this.depth <= 1 ? VALUES_PER_MESSAGE : 1;
        this.hasValue = true;
        this.depth += 1;
        break;
      case CLOSE_ARRAY:
      case CLOSE_OBJECT:
        this.depth -= 1;
    }
  }

  /** A line ends strings, which have no line breaks in JSON; an empty one ends an event. */
  private endLine(byte: number, previous: number | undefined): void {
    this.isInString = false;
    if (previous === CR && byte === LF) return;
    const isEmpty = previous === LF || previous === CR;
    if (isEmpty) {
      this.values += VALUES_PER_MESSAGE;
      this.depth = 0;
    } else if (!this.hasValue) this.values += 1;
    this.hasValue = false;
  }
}

/** A free-form JSON object, bounded in depth. */
export const JsonObject = z
  .looseObject({})
  .superRefine((value, { addIssue }) => {
    const { excess } = measureJson(value, {});
    if (excess) addIssue({ code: 'custom', message: excess });
    if (Object.keys(value).some((key) => key.length > MAX_KEY_LENGTH))
      addIssue({
        code: 'custom',
        message: `may have names of at most ${MAX_KEY_LENGTH} characters`,
      });
  })
  .meta({ propertyNames: { maxLength: MAX_KEY_LENGTH } });
export type JsonObject = z.infer<typeof JsonObject>;

/** As many as are described to the caller. */
const MAX_INVALID_ENTRIES = 20;

/**
 * A list in a request. Its length is checked first, and entries after the first invalid ones are ignored: describing every invalid
 * entry of a large body would take seconds.
 */
export const limitedList = <T extends z.ZodType>(
  entry: T,
  { min = 0, max }: { readonly min?: number; readonly max: number },
) =>
  z.preprocess(
    (sent) => (Array.isArray(sent) && sent.length <= max ? trimInvalid(entry, sent) : sent),
    z.array(entry).min(min).max(max),
  );

/** A map in a request. Its size is checked before its entries. */
export const limitedRecord = <T extends z.ZodType>(
  name: z.ZodString,
  value: T,
  { max }: { readonly max: number },
) =>
  z
    .preprocess(
      (sent, { addIssue }) => {
        if (!isContainer(sent) || Object.keys(sent).length <= max) return sent;
        addIssue({ code: 'custom', message: `may hold at most ${max} entries` });
        return z.NEVER;
      },
      z.record(name, value),
    )
    .meta({ maxProperties: max });

function trimInvalid(entry: z.ZodType, sent: readonly unknown[]): readonly unknown[] {
  let invalid = 0;
  const end = sent.findIndex((each) => {
    if (!entry.safeParse(each).success) invalid += 1;
    return invalid === MAX_INVALID_ENTRIES;
  });
  return end < 0 ? sent : sent.slice(0, end + 1);
}
