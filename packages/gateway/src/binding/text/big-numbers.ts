import { quote, ValueFault } from '../bind-fault.js';

const DECIMALS = 18;

/** A whole number of any size, in its canonical form. */
export function parseIntegerText(text: string): string {
  if (!/^-?\d{1,100}$/.test(text)) throw new ValueFault(`${quote(text)} is not a whole number`);
  return String(BigInt(text));
}

/** A decimal number as the integer of its 10^-18ths, which is how the wire holds it. */
export function parseDecimalText(text: string): string {
  const match = /^(-?)(\d{1,100})(?:\.(\d{1,18}))?$/.exec(text);
  if (!match)
    throw new ValueFault(`${quote(text)} is not a number with at most ${DECIMALS} decimals`);
  const [, sign, whole, fraction = ''] = match;
  return String(
    BigInt(`${sign}${whole}${fraction.padEnd(DECIMALS, '0')}`.replace(/^-(0+)$/, '$1')),
  );
}
