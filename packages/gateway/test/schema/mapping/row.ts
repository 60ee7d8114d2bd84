import type { FieldFact } from '../facts.js';
import { type Wire, wire } from '../wire.js';

/** One row of the mapping: a field numbered 5, how it prints when it is set, and when it is not. */
export interface Row {
  readonly title: string;
  readonly field: Omit<FieldFact, 'no' | 'name'>;
  readonly full: readonly (readonly [set: Set5, json: string])[];
  readonly absent: string;
}

/** Sets field 5. */
type Set5 = (message: Wire) => Wire;

export function text(value: string): Set5 {
  return (message) => message.text(5, value);
}

export function bytes(...value: number[]): Set5 {
  return (message) => message.bytes(5, value);
}

export function varint(value: bigint | number): Set5 {
  return (message) => message.varint(5, value);
}

export function inner(make: () => Wire): Set5 {
  return (message) => message.message(5, make());
}

export function time(seconds: bigint | number, nanos = 0): Set5 {
  return inner(() => wire().varint(1, seconds).varint(2, nanos));
}

export function any(url: string, make: () => Wire): Set5 {
  return inner(() => wire().text(1, url).message(2, make()));
}
