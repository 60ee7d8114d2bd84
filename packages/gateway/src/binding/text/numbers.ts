import { quote, ValueFault } from '../bind-fault.js';

/** Go's literals in base 0: a prefix names the base, and underscores may stand between digits. */
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

/** More digits than any number here has, and few enough to read at once. */
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
    throw new ValueFault(`${quote(text)} is not a whole number from ${min} to ${max}`);
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

export function parseFloatText(text: string): number {
  const notFinite = NOT_FINITE.get(text.toLowerCase());
  if (notFinite !== undefined) return notFinite;
  const value = DECIMAL_NUMBER.test(text) ? Number(text) : Number.NaN;
  if (!Number.isFinite(value)) throw new ValueFault(`${quote(text)} is not a number`);
  return value;
}

export function parseBool(text: string): boolean {
  if (TRUE.has(text)) return true;
  if (FALSE.has(text)) return false;
  throw new ValueFault(`${quote(text)} is neither true nor false`);
}
