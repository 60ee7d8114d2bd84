import type { DescEnum } from '@bufbuild/protobuf';
import { quote, ValueFault } from './bind-fault.js';
import { INT32 } from './text/numbers.js';

/** The number of an enum's value, given by name or as a number. */
export function enumNumber(type: DescEnum, text: string): number {
  const named = type.values.find((value) => value.name === text);
  if (named) return named.number;
  if (/^-?\d{1,10}$/.test(text)) {
    const number = BigInt(text);
    if (number >= INT32.min && number <= INT32.max) return Number(number);
  }
  throw new ValueFault(`${quote(text)} is none of ${namesOf(type)}, nor a number`);
}

function namesOf(type: DescEnum): string {
  const names = type.values.map((value) => value.name);
  return names.length > 12 ? `${names.slice(0, 12).join(', ')}, …` : names.join(', ');
}
