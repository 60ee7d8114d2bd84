import { quote, ValueError } from './bind-error.js';

/** Go's literals in base 0: a prefix defines the base, and underscores may separate digits. */
const LITERALS: readonly (readonly [RegExp, string])[] = [
  [/^0x(_?[0-9a-f])+$/, '0x'],
  [/^0b(_?[01])+$/, '0b'],
  [/^0o(_?[0-7])+$/, '0o'],
  [/^0(_?[0-7])+$/, '0'],
  [/^(0|[1-9](_?[0-9])*)$/, ''],
];

const DECIMAL_NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const NOT_FINITE: ReadonlyMap<string, number> = new Map([
  ['nan', Number.NaN],
  ['inf', Number.POSITIVE_INFINITY],
  ['+inf', Number.POSITIVE_INFINITY],
  ['-inf', Number.NEGATIVE_INFINITY],
  ['infinity', Number.POSITIVE_INFINITY],
  ['+infinity', Number.POSITIVE_INFINITY],
  ['-infinity', Number.NEGATIVE_INFINITY],
]);

const TRUE = new Set(['1', 't', 'T', 'true', 'TRUE', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'false', 'FALSE', 'False']);

/** Longer than any valid number or duration, and short enough to parse fast. */
const MAX_LENGTH = 100;

/** An integer type by its bits, as Go's `strconv` bounds it. */
export interface IntegerRange {
  readonly min: bigint;
  readonly max: bigint;
}

export const INT32: IntegerRange = { min: -(2n ** 31n), max: 2n ** 31n - 1n };
export const UINT32: IntegerRange = { min: 0n, max: 2n ** 32n - 1n };
export const INT64: IntegerRange = { min: -(2n ** 63n), max: 2n ** 63n - 1n };
export const UINT64: IntegerRange = { min: 0n, max: 2n ** 64n - 1n };

export function parseInteger(text: string, { min, max }: IntegerRange): bigint {
  const value = readInteger(text, min < 0n ? /^[+-]/ : /^(?!)/);
  if (value === undefined || value < min || value > max)
    throw new ValueError(`${quote(text)} is not a whole number from ${min} to ${max}`);
  return value;
}

function readInteger(text: string, sign: RegExp): bigint | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  const digits = text.replace(sign, '').toLowerCase();
  const prefix = LITERALS.find(([pattern]) => pattern.test(digits))?.[1];
  if (prefix === undefined) return undefined;
  const plain = digits.slice(prefix.length).replaceAll('_', '');
  const value = BigInt(`${prefix === '0' ? '0o' : prefix}${plain}`);
  return text.startsWith('-') ? -value : value;
}

export function parseFloatText(text: string, bits: 32 | 64): number {
  const notFinite = NOT_FINITE.get(text.toLowerCase());
  if (notFinite !== undefined) return notFinite;
  const parsed = DECIMAL_NUMBER.test(text) ? Number(text) : Number.NaN;
  const value = bits === 32 ? Math.fround(parsed) : parsed;
  if (!Number.isFinite(value)) throw new ValueError(`${quote(text)} is not a number`);
  return value;
}

export function parseBool(text: string): boolean {
  if (TRUE.has(text)) return true;
  if (FALSE.has(text)) return false;
  throw new ValueError(`${quote(text)} is neither true nor false`);
}

const DECIMALS = 18;

/** A whole number of any size, in its canonical form. */
export function parseIntegerText(text: string): string {
  if (!/^-?\d{1,100}$/.test(text)) throw new ValueError(`${quote(text)} is not a whole number`);
  return String(BigInt(text));
}

/** A decimal number as an integer multiple of 10^-18, as on the wire. */
export function parseDecimalText(text: string): string {
  const match = /^(-?)(\d{1,100})(?:\.(\d{1,18}))?$/.exec(text);
  if (!match)
    throw new ValueError(`${quote(text)} is not a number with at most ${DECIMALS} decimals`);
  const [, sign, whole, fraction = ''] = match;
  return String(
    BigInt(`${sign}${whole}${fraction.padEnd(DECIMALS, '0')}`.replace(/^-(0+)$/, '$1')),
  );
}

/** A Timestamp's or Duration's two fields. */
export interface SecondsAndNanos {
  readonly seconds: bigint;
  readonly nanos: number;
}

const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)$/;
const DURATION = /^[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/;
const DURATION_PART = /(\d*)\.?(\d*)(ns|us|µs|μs|ms|s|m|h)/g;
const NANOS_PER_SECOND = 1_000_000_000n;
const MAX_NANOS = 2n ** 63n;

const UNIT_NANOS: ReadonlyMap<string, bigint> = new Map([
  ['ns', 1n],
  ['us', 1000n],
  ['µs', 1000n],
  ['μs', 1000n],
  ['ms', 1_000_000n],
  ['s', NANOS_PER_SECOND],
  ['m', 60n * NANOS_PER_SECOND],
  ['h', 3600n * NANOS_PER_SECOND],
]);

/** RFC 3339 with any offset. */
export function parseTimestamp(text: string): SecondsAndNanos {
  const match = RFC3339.exec(text);
  const millis = match ? Date.parse(`${text.slice(0, 19)}Z`) : Number.NaN;
  // Rejects dates such as February 30, which parse to another day.
  if (
    !match ||
    Number.isNaN(millis) ||
    !new Date(millis).toISOString().startsWith(text.slice(0, 19))
  )
    throw new ValueError(`${quote(text)} is not a time such as 2006-01-02T15:04:05Z`);
  const offset = offsetSeconds(match[8] as string);
  const nanos = Number((match[7] ?? '').slice(0, 9).padEnd(9, '0'));
  return { seconds: BigInt(millis / 1000 - offset), nanos };
}

function offsetSeconds(zone: string): number {
  if (zone === 'Z') return 0;
  const seconds = Number(zone.slice(1, 3)) * 3600 + Number(zone.slice(4, 6)) * 60;
  return zone.startsWith('-') ? -seconds : seconds;
}

/** A duration as Go writes them, such as `1h30m` or `2.5s`. */
export function parseDuration(text: string): SecondsAndNanos {
  if (text.length > MAX_LENGTH || (text !== '0' && !DURATION.test(text))) throw notADuration(text);
  let total = 0n;
  for (const [, whole, fraction, unit] of text.matchAll(DURATION_PART)) {
    const nanos = UNIT_NANOS.get(unit as string) as bigint;
    const digits = fraction as string;
    total +=
      BigInt(whole || '0') * nanos + (BigInt(digits || '0') * nanos) / 10n ** BigInt(digits.length);
  }
  if (total >= MAX_NANOS) throw notADuration(text);
  const signed = text.startsWith('-') ? -total : total;
  return { seconds: signed / NANOS_PER_SECOND, nanos: Number(signed % NANOS_PER_SECOND) };
}

function notADuration(text: string): ValueError {
  return new ValueError(`${quote(text)} is not a duration such as 1h30m or 2.5s`);
}

/** How strictly base64 is read: `node` as a node does, `tolerant` accepts every variant. */
export type Base64Reading = 'node' | 'tolerant';

const STANDARD = /^[A-Za-z0-9+/]*={0,2}$/;
const URL_SAFE = /^[A-Za-z0-9_-]*={0,2}$/;
const TOLERANT = /^[A-Za-z0-9+/_ -]*$/;

/** Standard or URL-safe base64; `tolerant` also accepts missing padding and spaces in place of plus signs. */
export function parseBase64(text: string, reading: Base64Reading): Uint8Array {
  const bytes = reading === 'node' ? parsePadded(text) : parseTolerant(text);
  if (!bytes) throw new ValueError(`${quote(text)} is not base64`);
  return bytes;
}

function parsePadded(text: string): Uint8Array | undefined {
  const plain = text.replace(/[\r\n]/g, '');
  const isWhole = plain.length % 4 === 0 && (STANDARD.test(plain) || URL_SAFE.test(plain));
  return isWhole ? Buffer.from(plain, 'base64') : undefined;
}

function parseTolerant(text: string): Uint8Array | undefined {
  const plain = withoutPadding(text);
  if (plain.length % 4 === 1 || !TOLERANT.test(plain)) return undefined;
  // Both alphabets are decoded alike, but a space is skipped.
  const symbols = Buffer.from(plain, 'latin1');
  for (let at = symbols.indexOf(SPACE); at >= 0; at = symbols.indexOf(SPACE, at))
    symbols[at] = PLUS;
  return Buffer.from(symbols.toString('latin1'), 'base64');
}

const [SPACE = 0, PLUS = 0] = Buffer.from(' +');

/** Not a regular expression, which would take quadratic time for long texts. */
function withoutPadding(text: string): string {
  let end = text.length;
  while (end > 0 && text[end - 1] === '=') end -= 1;
  return text.slice(0, end);
}

export function parseHex(text: string): Uint8Array {
  if (!/^(?:[0-9a-f]{2})*$/i.test(text)) throw new ValueError(`${quote(text)} is not hex`);
  return Buffer.from(text, 'hex');
}
